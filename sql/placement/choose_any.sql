-- All open shards of a kind that have free slots, with their capacity: for a choice by hash.
-- $1 kind, $2 shards that are out of the question
WITH recent AS MATERIALIZED (
    SELECT shard_id, sum(change)::bigint AS change, count(*) AS entries
      FROM shardmaster.shard_room_change WHERE kind = $1 GROUP BY shard_id
)
SELECT r.shard_id, r.shard_key, s.capacity, r.room + coalesce(c.change, 0), coalesce(c.entries, 0)
  FROM shardmaster.shard_room r
  JOIN shardmaster.shard s ON s.id = r.shard_id
  LEFT JOIN recent c ON c.shard_id = r.shard_id
 WHERE r.kind = $1 AND r.is_open AND r.shard_id <> ALL ($2)
