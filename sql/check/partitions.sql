-- Which rows the partitions of a side's tables take. $1: schemas, $2: tables. Position of
-- the table, leaf, its condition; of a table that hashes without a partition for each
-- remainder, that table instead of the condition.
WITH wanted AS (
    SELECT w.ord - 1 AS position, c.oid
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind = 'p'
), lacking AS (
    SELECT w.position, min(p.relid::regclass::text) AS parent
      FROM wanted w CROSS JOIN pg_partition_tree(w.oid) p
      JOIN pg_partitioned_table t ON t.partrelid = p.relid AND t.partstrat = 'h'
     WHERE (SELECT coalesce(sum(1 / substring(pg_get_expr(c.relpartbound, c.oid) FROM 'modulus (\d+)')::numeric), 0)
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = p.relid) < 0.999999
     GROUP BY w.position
)
SELECT w.position, p.relid::regclass,
       -- Every remainder has its partition: then the hash keeps nothing out.
       regexp_replace(coalesce(pg_get_partition_constraintdef(p.relid), 'true'),
                      'satisfies_hash_partition\((?:"(?:[^"]|"")*"|[^")])*\)', 'true', 'g'),
       l.parent
  FROM wanted w CROSS JOIN pg_partition_tree(w.oid) p LEFT JOIN lacking l ON l.position = w.position
 WHERE p.isleaf
UNION ALL
SELECT w.position, w.oid::regclass, NULL, NULL
  FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM pg_partition_tree(w.oid) p WHERE p.isleaf AND p.relid <> w.oid)
 ORDER BY 1, 2
