-- Sequences of all schemas but some that belong to no column and that no default names, of whatever table or domain; an extension's
-- are its own affair. $1: schemas that are left out, $2: how many at most. Number, schema, name, owner,
-- whether it begins anew at its end.
SELECT s.oid, n.nspname, s.relname, o.rolname, q.seqcycle
  FROM pg_sequence q
  JOIN pg_class s ON s.oid = q.seqrelid AND s.relpersistence <> 't'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_roles o ON o.oid = s.relowner
 WHERE n.nspname <> ALL ($1::name[]) AND n.nspname NOT LIKE 'pg\_%'
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i', 'e'))
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid
                      AND d.classid IN ('pg_attrdef'::regclass, 'pg_type'::regclass))
 ORDER BY 2, 3 LIMIT $2::int
