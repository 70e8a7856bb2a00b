-- A slot counts from its reservation on: until it was given back, or the lease ran out,
-- or now.
-- $1 tenant or NULL, $2 since or NULL, $3 until or NULL
WITH trail AS (
    SELECT tenant_id, kind, status, created_at, ended_at, lease_expires_at
      FROM shardmaster.shard_reservation WHERE $1 IS NULL OR tenant_id = $1
    UNION ALL
    SELECT tenant_id, kind, status, created_at, ended_at, lease_expires_at
      FROM shardmaster.shard_reservation_archive WHERE $1 IS NULL OR tenant_id = $1
), held AS (
    SELECT tenant_id, kind, status, lease_expires_at, created_at,
           CASE WHEN status = 'confirmed' THEN pg_catalog.clock_timestamp()
                WHEN status IN ('pending', 'expired')
                THEN least(lease_expires_at, ended_at, pg_catalog.clock_timestamp())
                ELSE ended_at END AS held_until
      FROM trail
), used AS (
    SELECT tenant_id, kind,
           count(*) FILTER (WHERE status = 'pending'
                              AND (lease_expires_at IS NULL OR lease_expires_at > pg_catalog.clock_timestamp())) AS leased,
           count(*) FILTER (WHERE status = 'confirmed') AS confirmed,
           -- Before PostgreSQL 14 what is extracted is of double precision.
           sum(greatest(extract(epoch FROM least(held_until, coalesce($3, 'infinity'))
                                         - greatest(created_at, coalesce($2, '-infinity'))), 0))::numeric AS slot_seconds
      FROM held GROUP BY tenant_id, kind
)
SELECT coalesce(u.kind, q.kind), coalesce(u.leased, 0), coalesce(u.confirmed, 0), q.max_slots,
       round(coalesce(u.slot_seconds, 0), 3), coalesce(u.tenant_id, q.tenant_id)
  FROM used u
  FULL JOIN (SELECT * FROM shardmaster.shard_quota WHERE $1 IS NULL OR tenant_id = $1) q
         ON q.tenant_id = u.tenant_id AND q.kind = u.kind
 ORDER BY 6, 1
