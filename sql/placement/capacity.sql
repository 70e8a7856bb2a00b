-- $1 kind; NULL: all
WITH pending AS (
    SELECT shard_id,
           count(*) FILTER (WHERE lease_expires_at <= pg_catalog.clock_timestamp()) AS overdue,
           count(*) AS all_of_them
      FROM shardmaster.shard_reservation WHERE ($1 IS NULL OR kind = $1) AND status = 'pending' GROUP BY shard_id
), recent AS (
    SELECT shard_id, sum(change)::bigint AS change
      FROM shardmaster.shard_room_change WHERE $1 IS NULL OR kind = $1 GROUP BY shard_id
), shard AS (
    SELECT s.shard_key, s.kind, s.status, s.capacity, s.next_slot, coalesce(p.overdue, 0) AS overdue,
           coalesce(p.all_of_them, 0) AS pending,
           coalesce(s.capacity, 1::bigint << 62) - r.room - coalesce(c.change, 0) AS held
      FROM shardmaster.shard s
      JOIN shardmaster.shard_room r ON r.shard_id = s.id
      LEFT JOIN pending p ON p.shard_id = s.id
      LEFT JOIN recent c ON c.shard_id = s.id
     WHERE $1 IS NULL OR s.kind = $1
)
SELECT shard_key, status, capacity, next_slot, next_slot - held + overdue, pending - overdue, held - pending,
       CASE WHEN capacity IS NOT NULL THEN greatest(capacity - held + overdue, 0) END, kind
  FROM shard ORDER BY kind, shard_key
