-- Takes a free slot of a shard that is still open, and makes the reservation: slots that
-- were given back first, then those that were minted. Slots that another transaction is
-- just taking are passed over. New slots are consumed upwards, so the fresh ones are at
-- the end, as many as the shard's room says; from there on they are looked for, or from
-- a part of them on. Of a shard with more slots than capacity only who counts them ($8)
-- may take one.
-- $1 shard, $2 kind, $3 logical key, $4 tenant, $5 lease in seconds,
-- $6 room, NULL: look everywhere, $7 part of the fresh slots to pass, $8 counted
WITH open AS MATERIALIZED (
    SELECT id, shard_key, next_slot, capacity, free,
           coalesce(next_slot - free - 16 + (free * $7)::bigint, 0) AS look_from
      FROM (SELECT *, next_slot + $6 - coalesce(capacity, 1::bigint << 62) AS free
              FROM shardmaster.shard
             WHERE id = $1 AND status = 'active' AND (capacity IS NULL OR next_slot <= capacity OR $8)) s
), returned AS MATERIALIZED (
    SELECT f.slot_no FROM shardmaster.shard_slots f
     WHERE f.shard_id = $1 AND f.returned_no >= 0 AND EXISTS (SELECT 1 FROM open)
     ORDER BY f.returned_no LIMIT 1 FOR UPDATE SKIP LOCKED
), fresh AS MATERIALIZED (
    SELECT f.slot_no FROM shardmaster.shard_slots f
     WHERE f.shard_id = $1 AND f.fresh_no >= (SELECT look_from FROM open) AND NOT EXISTS (SELECT 1 FROM returned)
     ORDER BY f.fresh_no LIMIT 1 FOR UPDATE SKIP LOCKED
), slot AS MATERIALIZED (
    SELECT slot_no, pg_catalog.nextval('shardmaster.shard_reservation_id_seq') AS id
      FROM (SELECT slot_no FROM returned UNION ALL SELECT slot_no FROM fresh) f
), taken AS (
    UPDATE shardmaster.shard_slots s
       SET reservation_id = slot.id, tenant_id = $4, fresh_no = NULL, returned_no = NULL
      FROM slot WHERE s.shard_id = $1 AND s.slot_no = slot.slot_no
), made AS (
    INSERT INTO shardmaster.shard_reservation (id, kind, logical_key, tenant_id, shard_id, slot_no, lease_expires_at)
    SELECT id, $2, $3, $4, $1, slot_no, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $5)
      FROM slot
    RETURNING id, slot_no, lease_expires_at
)
SELECT o.shard_key, o.next_slot, o.capacity, o.free, m.id, m.slot_no, m.lease_expires_at FROM open o LEFT JOIN made m ON true
