-- Which rows went when clients emptied partitions of a table: of each of these its bound, as a condition
-- over the columns by which the table is partitioned. $1: the table, $2: its key, $3: the leaves that it had when it opened.
-- None of a partition that is not one of the table's any more, or is one by something else than columns of the key. Nor of
-- one whose bound may have been another one then, since rows that were elsewhere did not go with it: attached, a table is
-- a partition by another row of pg_inherits, which is younger than the table of changes. The bound of a default partition is
-- what the others leave, of which none may have come or gone.
WITH made (age) AS (
    SELECT age(c.xmin) FROM pg_class c WHERE c.oid = 'shardmaster_agent.{changed}'::regclass
)
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
   AND NOT EXISTS (
       SELECT 1 FROM pg_partition_ancestors(g.leaf) p JOIN pg_inherits i ON i.inhrelid = p.relid CROSS JOIN made
        WHERE age(i.xmin) < made.age)
   AND (NOT EXISTS (SELECT 1 FROM pg_partition_ancestors(g.leaf) p JOIN pg_partitioned_table t ON t.partdefid = p.relid)
        OR cardinality($3::oid[]) > 0
           AND $3::oid[] <@ ARRAY(SELECT m.relid::oid FROM pg_partition_tree(to_regclass($1)) m)
           AND NOT EXISTS (SELECT 1 FROM pg_partition_tree(to_regclass($1)) m JOIN pg_inherits i ON i.inhrelid = m.relid
                            CROSS JOIN made WHERE age(i.xmin) < made.age))
