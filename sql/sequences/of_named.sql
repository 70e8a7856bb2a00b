-- Sequences that belong to columns of tables, or that their defaults draw from. $1: schemas, $2: names of tables.
-- The sequence's number, schema, name, owner, whether it begins anew at its end; the table's schema and name.
SELECT DISTINCT s.oid, n.nspname, s.relname, o.rolname, q.seqcycle, m.nspname, t.relname
  FROM unnest($1::name[]) w (nsp)
  JOIN pg_namespace m ON m.nspname = w.nsp CROSS JOIN unnest($2::name[]) v (rel)
  JOIN pg_class t ON t.relname = v.rel AND t.relnamespace = m.oid AND t.relkind IN ('r', 'p')
 CROSS JOIN LATERAL (
    SELECT p.objid FROM pg_depend p
     WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = t.oid AND p.classid = 'pg_class'::regclass AND p.deptype IN ('a', 'i')
    UNION
    SELECT p.refobjid FROM pg_attrdef d
     CROSS JOIN LATERAL (
        SELECT * FROM pg_depend p
         WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass OFFSET 0) p
     WHERE d.adrelid = t.oid) f (sequence)
  JOIN pg_class s ON s.oid = f.sequence AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_roles o ON o.oid = s.relowner
  JOIN pg_sequence q ON q.seqrelid = s.oid
 ORDER BY 2, 3, 6, 7
