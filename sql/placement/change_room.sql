-- Adds a change to a shard's free slots, with those that others have left; without waiting:
-- while another transaction has the row, they are made one beside it.
-- $1 shard, $2 kind, $3 change
WITH main AS MATERIALIZED (
    SELECT shard_id FROM shardmaster.shard_room WHERE shard_id = $1 FOR NO KEY UPDATE SKIP LOCKED
), left_behind AS MATERIALIZED (
    SELECT id FROM shardmaster.shard_room_change
     WHERE kind = $2 AND shard_id = $1
     ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM shardmaster.shard_room_change
     WHERE kind = $2 AND shard_id = $1 AND id = ANY (ARRAY(SELECT id FROM left_behind))
    RETURNING change
), added AS (
    UPDATE shardmaster.shard_room
       SET room = room + $3 + (SELECT coalesce(sum(change), 0)::bigint FROM gone)
     WHERE shard_id = (SELECT shard_id FROM main)
)
INSERT INTO shardmaster.shard_room_change (kind, shard_id, change)
SELECT $2, $1, $3 + (SELECT coalesce(sum(change), 0)::bigint FROM gone)
 WHERE NOT EXISTS (SELECT 1 FROM main)
RETURNING 1
