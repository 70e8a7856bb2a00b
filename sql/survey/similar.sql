-- Columns with a name that a typo could have made the name $2: of the tables $1, and of views in their schemas.
SELECT CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END, c.oid::regclass::text, a.attname
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.oid = ANY ($1::oid[])
    OR c.relkind IN ('v', 'm') AND a.attname = $2::text
       AND c.relnamespace IN (SELECT t.relnamespace FROM pg_class t WHERE t.oid = ANY ($1::oid[]))
 ORDER BY 2, a.attnum
