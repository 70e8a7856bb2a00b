-- Tables that two policies mean: by two names, or one as a partition of the other.
-- $1: keyspaces, $2: schemas, $3: names, the tables of the split first; $4: how many.
WITH policy AS (
    SELECT w.ord, w.keyspace, format('%I.%I', w.nsp, w.rel) AS name, c.oid
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (keyspace, nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), member AS (
    SELECT ord, oid AS relid FROM policy
    UNION
    SELECT p.ord, t.relid FROM policy p, pg_partition_tree(p.oid) t
)
SELECT DISTINCT format('%s of keyspace %s is %s %s of keyspace %s', a.name, quote_ident(a.keyspace),
              CASE WHEN a.oid = b.oid THEN 'the same table as' ELSE 'in one partition tree with' END,
              b.name, quote_ident(b.keyspace))
  FROM policy a JOIN policy b ON b.ord > a.ord AND a.ord <= $4::int
 WHERE EXISTS (SELECT 1 FROM member m WHERE m.ord = a.ord AND m.relid = b.oid)
    OR EXISTS (SELECT 1 FROM member m WHERE m.ord = b.ord AND m.relid = a.oid)
 ORDER BY 1
