-- Reservations of a kind whose lease has run out, those that ran out first; those that
-- somebody else has locked are left alone. Their slots are locked with them: a session
-- that looked for a free one may still have a lock on a slot that it did not take, and
-- who releases is not to wait for that.
-- $1 kind, $2 how many
SELECT r.id FROM shardmaster.shard_reservation r
  JOIN shardmaster.shard_slots s ON s.shard_id = r.shard_id AND s.slot_no = r.slot_no
 WHERE r.kind = $1 AND r.status = 'pending' AND r.lease_expires_at <= (SELECT pg_catalog.clock_timestamp())
 ORDER BY r.lease_expires_at LIMIT $2 FOR UPDATE OF r SKIP LOCKED FOR NO KEY UPDATE OF s SKIP LOCKED
