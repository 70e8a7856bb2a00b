-- Adds up changes that nobody has added up, of up to $1 entries.
WITH changed AS MATERIALIZED (
    SELECT DISTINCT shard_id FROM (SELECT shard_id FROM shardmaster.shard_room_change LIMIT $1) c
), main AS MATERIALIZED (
    SELECT shard_id, kind FROM shardmaster.shard_room
     WHERE shard_id IN (SELECT shard_id FROM changed) ORDER BY shard_id FOR NO KEY UPDATE SKIP LOCKED
), entry AS MATERIALIZED (
    SELECT c.kind, c.shard_id, c.id FROM shardmaster.shard_room_change c
     WHERE (c.kind, c.shard_id) IN (SELECT kind, shard_id FROM main) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM shardmaster.shard_room_change c USING entry e
     WHERE c.kind = e.kind AND c.shard_id = e.shard_id AND c.id = e.id
    RETURNING c.shard_id, c.change
)
UPDATE shardmaster.shard_room r
   SET room = r.room + g.change
  FROM (SELECT shard_id, sum(change)::bigint AS change FROM gone GROUP BY shard_id) g
 WHERE r.shard_id = g.shard_id
