-- $1 percent of the table's pages that are read. Entries of routing by shard, and by keyspace.
SELECT grouping(e.read_shard) = 0, coalesce(e.read_shard, e.keyspace), count(*)
  FROM shardmaster.routing_entry e TABLESAMPLE SYSTEM ($1) WHERE e.valid_to IS NULL
 GROUP BY GROUPING SETS ((e.read_shard), (e.keyspace))
