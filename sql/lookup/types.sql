-- The names of the types of two columns, as shape.sql writes them: of a domain what it is made of. $1: the table, qualified and quoted,
-- $2, $3: the columns. And whether an index leads with the first one. No row: there is no such table; NULL: such a column is none by which pairs are compared.
WITH RECURSIVE base (name, oid) AS (
    SELECT a.attname, a.atttypid FROM pg_attribute a
     WHERE a.attrelid = to_regclass($1) AND a.attname IN ($2, $3) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.name, d.typbasetype FROM base b JOIN pg_type d ON d.oid = b.oid AND d.typtype = 'd'
), made (name, type) AS (
    SELECT b.name, 'pg_catalog.' || t.typname::text FROM base b JOIN pg_type t ON t.oid = b.oid
     WHERE t.typtype = 'b' AND t.typnamespace = 'pg_catalog'::regnamespace
)
SELECT (SELECT m.type FROM made m WHERE m.name = $2), (SELECT m.type FROM made m WHERE m.name = $3),
       EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                WHERE i.indrelid = to_regclass($1) AND a.attname = $2 AND i.indisvalid AND i.indpred IS NULL)
 WHERE to_regclass($1) IS NOT NULL
