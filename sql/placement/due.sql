-- Reservations of a kind whose lease has run out, those that ran out first; rows that
-- somebody else has in hand are left to him.
-- $1 kind, $2 how many
SELECT id FROM shardmaster.shard_reservation
 WHERE kind = $1 AND status = 'pending' AND lease_expires_at <= (SELECT pg_catalog.clock_timestamp())
 ORDER BY lease_expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
