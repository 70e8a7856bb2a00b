-- As choose_fill_first.sql, where nobody has left a change: one entry of an index.
-- $1 kind, $2 shards that are out of the question
SELECT r.shard_id, r.room, 0::bigint
  FROM shardmaster.shard_room r
 WHERE r.kind = $1 AND r.is_open AND r.room > 0 AND r.shard_id <> ALL ($2)
   AND NOT EXISTS (SELECT 1 FROM shardmaster.shard_room_change WHERE kind = $1)
 ORDER BY r.room, r.shard_key LIMIT 1
