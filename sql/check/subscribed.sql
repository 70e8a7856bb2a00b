-- Tables of a side that a subscription writes to, with what that does. $1: schemas, $2: tables, $3: whether this is the target.
SELECT format('a subscription writes to %s', c.oid::regclass),
       CASE WHEN $3::boolean THEN 'Rows that finish deletes on the source would be deleted here as well, or copied rows arrive twice. Drop the subscription, or remove the table from its publication.'
            ELSE 'After the cutover it would stop at the first change of a moved key. Remove the moving keys from the publication, or drop the subscription.' END
  FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = w.rel
 CROSS JOIN LATERAL (SELECT t.oid UNION SELECT p.relid FROM pg_partition_tree(t.oid) p) AS c (oid)
  JOIN pg_subscription_rel s ON s.srrelid = c.oid
