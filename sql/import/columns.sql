-- The columns of tables that the session may read, with their types without domains: the number of one of the server's own,
-- with its modifier, or NULL.
SELECT w.ord, a.attname::pg_catalog.text AS name,
       CASE WHEN b.oid < 16384 THEN b.oid::pg_catalog.int8 END AS type,
       CASE WHEN b.depth = 0 THEN a.atttypmod ELSE b.typmod END AS modifier,
       (SELECT c.collname::pg_catalog.text FROM pg_catalog.pg_collation c
         WHERE c.oid = a.attcollation AND c.collnamespace = 'pg_catalog'::pg_catalog.regnamespace) AS collation
  FROM ROWS FROM (pg_catalog.unnest({schemas}::pg_catalog.text[]), pg_catalog.unnest({names}::pg_catalog.text[]))
       WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.nsp
  JOIN pg_catalog.pg_class t ON t.relnamespace = n.oid AND t.relname = w.rel AND t.relkind IN ('r', 'p')
  JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
 CROSS JOIN LATERAL (
    WITH RECURSIVE inner_type (oid, typtype, typbasetype, typmod, depth) AS (
        SELECT y.oid, y.typtype, y.typbasetype, y.typtypmod, 0 FROM pg_catalog.pg_type y WHERE y.oid = a.atttypid
        UNION ALL
        SELECT y.oid, y.typtype, y.typbasetype, CASE WHEN y.typtype = 'd' THEN y.typtypmod ELSE d.typmod END, d.depth + 1
          FROM inner_type d JOIN pg_catalog.pg_type y ON d.typtype = 'd' AND y.oid = d.typbasetype
    )
    SELECT i.oid, i.typmod, i.depth FROM inner_type i WHERE i.typtype <> 'd') b
 WHERE pg_catalog.has_column_privilege(t.oid, a.attnum, 'SELECT')
 ORDER BY w.ord, a.attnum
