-- Sequences of some schemas that belong to no column and that no default names, of whatever table or domain; an extension's are
-- its own affair. $1: schemas, $2: how many at most. Number, schema, name, owner,
-- whether it begins anew at its end.
SELECT s.oid, n.nspname, s.relname, o.rolname, q.seqcycle
  FROM (SELECT DISTINCT w.nsp FROM unnest($1::name[]) w (nsp)) w
  JOIN pg_namespace n ON n.nspname = w.nsp
  JOIN pg_class s ON s.relnamespace = n.oid AND s.relkind = 'S' AND s.relpersistence <> 't'
  JOIN pg_roles o ON o.oid = s.relowner
  JOIN pg_sequence q ON q.seqrelid = s.oid
 WHERE NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i', 'e'))
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid
                      AND d.classid IN ('pg_attrdef'::regclass, 'pg_type'::regclass))
 ORDER BY 2, 3 LIMIT $2::int
