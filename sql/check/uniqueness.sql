-- Constraints by which two rows of a table exclude each other. $1: schemas, $2: tables.
-- Position of the table, name, what the constraint says, whether it is deferrable.
SELECT w.ord - 1, k.conname,
       CASE k.contype
            WHEN 'x' THEN regexp_replace(pg_get_constraintdef(k.oid), ' DEFERRABLE.*$', '')
            ELSE (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attname) FROM pg_attribute a
                   WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey))
                 || coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false')
       END || CASE WHEN k.conrelid <> c.oid THEN ' of partition ' || k.conrelid::regclass ELSE '' END,
       k.condeferrable
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
  JOIN pg_constraint k ON k.conrelid IN (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p)
  JOIN pg_index i ON i.indexrelid = k.conindid
 WHERE k.contype IN ('p', 'u', 'x') AND k.conparentid = 0
