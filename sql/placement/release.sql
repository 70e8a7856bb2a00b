-- Ends reservations whose rows this transaction has locked: their slots are free again.
-- $1 reservations, $2 status: cancelled, expired or released
WITH ended AS (
    UPDATE shardmaster.shard_reservation
       SET status = $2, ended_at = pg_catalog.clock_timestamp(), updated_at = pg_catalog.clock_timestamp()
     WHERE id = ANY ($1)
    RETURNING id, kind, tenant_id, shard_id, slot_no
), freed AS (
    UPDATE shardmaster.shard_slots s
       SET reservation_id = NULL, tenant_id = NULL, resource_id = NULL, returned_no = s.slot_no
      FROM ended e WHERE s.shard_id = e.shard_id AND s.slot_no = e.slot_no
), room AS (
    INSERT INTO shardmaster.shard_room_change (kind, shard_id, change)
    SELECT kind, shard_id, count(*) FROM ended GROUP BY kind, shard_id
)
INSERT INTO shardmaster.shard_quota_change (tenant_id, kind, change)
SELECT e.tenant_id, e.kind, -count(*)
  FROM ended e JOIN shardmaster.shard_quota q ON q.tenant_id = e.tenant_id AND q.kind = e.kind
 GROUP BY e.tenant_id, e.kind
