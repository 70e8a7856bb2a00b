-- What the text of a generated column names in schemas, where COPY reads it anew: $1: schemas,
-- $2: tables, {columns}: a column of each, as lists. The table, the column, schema and name; no name: operators.
SELECT a.attrelid, a.attname, x.*
  FROM unnest($1::text[], $2::text[], {columns}::text[]) AS w (nsp, rel, shard_by)
  JOIN pg_namespace s ON s.nspname = w.nsp JOIN pg_class l ON l.relnamespace = s.oid AND l.relname = w.rel
  JOIN pg_attribute a ON a.attrelid = l.oid AND a.attname = w.shard_by AND a.attgenerated <> ''
  JOIN pg_attrdef k ON k.adrelid = a.attrelid AND k.adnum = a.attnum
 CROSS JOIN LATERAL (
    SELECT * FROM pg_depend p WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = k.oid
    -- Before PostgreSQL 15 it is the column's.
    UNION ALL
    SELECT * FROM pg_depend p WHERE p.classid = 'pg_class'::regclass AND p.objid = l.oid AND p.objsubid = a.attnum AND p.deptype = 'a'
 ) AS d
 CROSS JOIN LATERAL (
    SELECT p.pronamespace, p.proname FROM pg_proc p WHERE d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
    UNION ALL SELECT t.typnamespace, t.typname FROM pg_type t WHERE d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
    UNION ALL SELECT o.oprnamespace, NULL FROM pg_operator o WHERE d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
    -- An array without elements alone may name one, of which pg_depend knows nothing.
    UNION ALL SELECT t.typnamespace, t.typname FROM regexp_matches(k.adbin::text, ':(?:array_typeid|element_typeid|typid) (\d+)', 'g') AS f (found)
                JOIN pg_type t ON t.oid = f.found[1]::oid AND t.oid >= 16384
 ) AS x (nsp, name)
