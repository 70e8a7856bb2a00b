-- CHECK constraints of a side's tables. A COPY goes by all of them, also by those that are
-- NOT VALID. $1: schemas, $2: tables. Position of the table, where the constraint is, its
-- name, which rows it is about (the bounds of a partition, '' for all), what it says, what
-- its functions are, the columns, whether every row is known to keep to it, whether it is
-- that of the table above, the table's schema.
WITH tree AS (
    SELECT w.ord - 1 AS position, quote_ident(w.nsp) AS schema, c.oid AS root, l.oid,
           -- Of a hash the text names the table by its number.
           CASE WHEN l.oid = c.oid THEN ''
                ELSE regexp_replace(coalesce(pg_get_partition_constraintdef(l.oid), ''), '''\d+''::oid', '', 'g') END AS bounds
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     CROSS JOIN LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) m
      JOIN pg_class l ON l.oid = m.oid
)
SELECT t.position, t.oid::regclass, k.conname, t.bounds,
       pg_get_expr(k.conbin, k.conrelid),
       coalesce((SELECT string_agg(format('%s: %s', p.proname, md5(coalesce(nullif(p.prosrc, ''), replace(pg_get_functiondef(p.oid), p.pronamespace::regnamespace || '.', '')))),
                                   ', ' ORDER BY p.proname, p.oid::regprocedure::text)
                   FROM pg_depend d LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
                   JOIN pg_proc p ON p.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid ELSE o.oprcode END
                  WHERE d.classid = 'pg_constraint'::regclass AND d.objid = k.oid AND p.prokind = 'f'), ''),
       (SELECT json_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)),
       k.convalidated,
       k.coninhcount > 0 AND NOT k.conislocal, t.schema
  FROM tree t JOIN pg_constraint k ON k.conrelid = t.oid
 WHERE k.contype = 'c' AND coalesce(to_jsonb(k) ->> 'conenforced', 'true')::boolean
UNION ALL
-- NOT NULL of a partition alone; those of the table are compared with its columns.
SELECT t.position, t.oid::regclass, 'NOT NULL', t.bounds,
       format('%I IS NOT NULL', a.attname), '', json_build_array(a.attname), true, t.oid = t.root OR r.attnotnull, t.schema
  FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnotnull AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_attribute r ON r.attrelid = t.root AND r.attname = a.attname
 ORDER BY 1, 2, 3
