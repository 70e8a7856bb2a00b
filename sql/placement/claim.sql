-- Locks a free slot of a shard that is still open: one that was given back first, then
-- one that was minted. Slots that another transaction is just taking are passed over.
-- New slots are consumed upwards, so the fresh ones are at the end, as many as the
-- shard's count says; from there on they are looked for, or from a part of them on. Of a
-- shard with more slots than capacity only who counts them ($4) may take one.
-- $1 shard, $2 free slots, NULL: look everywhere, $3 part of the fresh slots to pass, $4 counted
SELECT s.shard_key, s.next_slot, s.capacity, s.free, s.to_be_counted,
       CASE WHEN NOT s.to_be_counted THEN
           coalesce((SELECT f.slot_no FROM shardmaster.shard_slots f
                      WHERE f.shard_id = $1 AND f.returned_no >= 0
                      ORDER BY f.returned_no LIMIT 1 FOR UPDATE SKIP LOCKED),
                    (SELECT f.slot_no FROM shardmaster.shard_slots f
                      WHERE f.shard_id = $1
                        AND f.fresh_no >= coalesce(s.next_slot - s.free - 16 + (s.free * $3)::bigint, 0)
                      ORDER BY f.fresh_no LIMIT 1 FOR UPDATE SKIP LOCKED))
       END
  FROM (SELECT shard_key, next_slot, capacity, next_slot + $2 - coalesce(capacity, 1::bigint << 62) AS free,
               coalesce(next_slot > capacity, false) AND NOT $4 AS to_be_counted
          FROM shardmaster.shard
         WHERE id = $1 AND status = 'active') s
