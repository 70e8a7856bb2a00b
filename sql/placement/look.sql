-- What a reservation has to know first: the live one with this key, whether leases of
-- the kind have run out, whether the tenant has a quota. The clock is read once, so that
-- an index can be asked.
-- $1 kind, $2 logical key, $3 tenant, $4 whether leases are asked for
SELECT r.id, r.tenant_id, r.shard_id, r.slot_no, r.status, r.lease_expires_at,
       r.status = 'pending' AND r.lease_expires_at <= pg_catalog.clock_timestamp(),
       $4 AND (SELECT d.lease_expires_at FROM shardmaster.shard_reservation d
         WHERE d.kind = $1 AND d.status = 'pending'
           AND d.lease_expires_at <= (SELECT pg_catalog.clock_timestamp())
         ORDER BY d.lease_expires_at LIMIT 1) IS NOT NULL,
       EXISTS (SELECT 1 FROM shardmaster.shard_quota q WHERE q.tenant_id = $3 AND q.kind = $1)
  FROM (VALUES (1)) one
  LEFT JOIN shardmaster.shard_reservation r
         ON r.kind = $1 AND r.logical_key = $2 AND r.status IN ('pending', 'confirmed')
