-- Bytes of long values that tables have stored beside their rows. $1: schemas, $2: tables. Position, bytes.
SELECT w.ord - 1, sum(pg_relation_size(l.reltoastrelid))
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
 CROSS JOIN LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) AS t (oid)
  JOIN pg_class l ON l.oid = t.oid
 WHERE l.reltoastrelid <> 0
 GROUP BY w.ord
