-- The open shard with the fewest free slots that has any, and how many changes were added up.
-- Shards with changes are few; the others come from the index, in its order.
-- $1 kind, $2 shards that are out of the question
WITH recent AS MATERIALIZED (
    SELECT shard_id, sum(change)::bigint AS change, count(*) AS entries
      FROM shardmaster.shard_room_change WHERE kind = $1 GROUP BY shard_id
), candidate AS (
    SELECT r.shard_id, r.room + c.change AS room, r.shard_key
      FROM recent c JOIN shardmaster.shard_room r ON r.shard_id = c.shard_id
     WHERE r.is_open AND r.room + c.change > 0 AND r.shard_id <> ALL ($2)
    UNION ALL
    (SELECT r.shard_id, r.room, r.shard_key
       FROM shardmaster.shard_room r
      WHERE r.kind = $1 AND r.is_open AND r.room > 0 AND r.shard_id <> ALL ($2)
        AND r.shard_id <> ALL (ARRAY(SELECT shard_id FROM recent))
      ORDER BY r.room, r.shard_key LIMIT 1)
)
SELECT shard_id, room, (SELECT coalesce(sum(entries), 0)::bigint FROM recent)
  FROM candidate ORDER BY room, shard_key LIMIT 1
