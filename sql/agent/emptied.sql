-- Which rows went when clients emptied partitions of a table: of each of these its bound, as a condition
-- over the columns by which the table is partitioned. None of a partition that is not one of the
-- table's any more, or is one by something else than columns of the key. $1: the table, $2: the key.
SELECT DISTINCT pg_get_partition_constraintdef(g.leaf)
  FROM shardmaster_agent.{changed} g
 WHERE g.k1 IS NULL AND g.op = 'T'
   AND to_regclass($1) IN (SELECT a.relid FROM pg_partition_ancestors(g.leaf) a WHERE a.relid <> g.leaf)
   AND NOT EXISTS (
       SELECT 1 FROM pg_partition_ancestors(g.leaf) p
         JOIN pg_partitioned_table t ON t.partrelid = p.relid
        CROSS JOIN unnest(t.partattrs::int2[]) AS k (attnum)
         LEFT JOIN pg_attribute a ON a.attrelid = p.relid AND a.attnum = k.attnum AND k.attnum <> 0
        WHERE a.attname = ANY ($2::text[]) IS NOT TRUE)
