-- What the functions of generated columns are. $1: schemas, $2: tables. Position of the
-- table, column, functions.
SELECT w.ord - 1, a.attname,
       string_agg(format('%s: %s', p.proname, md5(coalesce(nullif(p.prosrc, ''), replace(pg_get_functiondef(p.oid), p.pronamespace::regnamespace || '.', '')))),
                  ', ' ORDER BY p.proname, p.oid::regprocedure::text)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped
  JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
  JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
  LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
  JOIN pg_proc p ON p.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid ELSE o.oprcode END
 WHERE p.prokind = 'f'
 GROUP BY w.ord, a.attname
