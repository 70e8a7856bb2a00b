-- Of the open shards without a capacity the one to which the fewest keys are routed, or the most, and its free slots. Each key
-- of a directory counts, and each reservation. $3: how many percent of the entries' pages are read: all of few, of many enough
-- to tell what differs.
-- $1 kind, $2 shards that are out of the question, $4 the most
WITH held AS MATERIALIZED (
    SELECT e.read_shard, count(*) * 100 / $3 AS keys
      FROM shardmaster.routing_entry e TABLESAMPLE SYSTEM ($3)
     WHERE e.valid_to IS NULL AND e.bucket IS NULL AND e.span IS NULL GROUP BY e.read_shard
)
SELECT r.shard_id, r.room, 0::bigint
  FROM shardmaster.shard_room r
  JOIN shardmaster.shard s ON s.id = r.shard_id
  LEFT JOIN held h ON h.read_shard = r.shard_key
 WHERE r.kind = $1 AND r.is_open AND s.capacity IS NULL AND r.shard_id <> ALL ($2)
 ORDER BY (CASE WHEN $4 THEN -1 ELSE 1 END) * greatest(coalesce(h.keys, 0), ((1::bigint << 62) - r.room)::float8), r.shard_key LIMIT 1
