-- Columns that could hold numbers of large objects and are not of type oid: texts, and whole numbers that are neither part of a key
-- nor refer to one nor count by themselves. $1: tables. Position of the table, counted from 1, and column.
SELECT w.position, a.attname
  FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
  JOIN pg_attribute a ON a.attrelid = w.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 WHERE CASE
       WHEN a.atttypid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype) THEN true
       WHEN a.atttypid IN ('int4'::regtype, 'int8'::regtype, 'numeric'::regtype) THEN a.attidentity = ''
            AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = w.relation AND i.indisunique AND a.attnum = ANY (i.indkey))
            AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conrelid = w.relation AND c.contype = 'f' AND a.attnum = ANY (c.conkey))
       END
 ORDER BY w.position, a.attnum
