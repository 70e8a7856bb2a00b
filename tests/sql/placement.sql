-- Placement: slots of capacity-limited shards, reserved, confirmed, freed.
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE EXTENSION shardmaster;

SELECT shard_add('v1', kind => 'vector', capacity => 3) > 0 AS added;
SELECT shard_add('v2', kind => 'vector', capacity => 4) > 0 AS added;
SELECT * FROM shard_capacity('vector');

-- Reserve, create the resource, confirm. fill_first: the shard with the least room.
SELECT reservation_id, shard_key, slot_no, status, lease_expires_at > now() + interval '4 min' AS lease_runs
  FROM shard_reserve_slot('vector', 'index-1', 'acme');
SELECT shard_confirm_slot(1, 'pg_index_77');
-- Asked again it is the same reservation, and a confirmed one has no lease.
SELECT * FROM shard_reserve_slot('vector', 'index-1', 'acme');
SELECT shard_confirm_slot(1, 'pg_index_77');
-- Another tenant does not get it, another resource is refused.
SELECT * FROM shard_reserve_slot('vector', 'index-1', 'bolt');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_confirm_slot(1, 'pg_index_78');
SELECT shard_cancel_slot(1);

-- Creating the resource failed: give the slot back. It is the next one to be used.
SELECT reservation_id, shard_key, slot_no FROM shard_reserve_slot('vector', 'index-2', 'acme');
SELECT reservation_id, shard_key, slot_no FROM shard_reserve_slot('vector', 'index-3', 'acme');
SELECT shard_cancel_slot(2);
SELECT shard_cancel_slot(2);
SELECT shard_confirm_slot(2, 'late');
SELECT reservation_id, shard_key, slot_no FROM shard_reserve_slot('vector', 'index-4', 'bolt');
SELECT tenant_id, resource_id, reservation_id FROM shardmaster.shard_slots WHERE shard_id = 1 ORDER BY slot_no;

-- The resource was deleted: its slot is free.
SELECT shard_free_slot('vector', 'index-1'), shard_free_slot('vector', 'index-1'), shard_free_slot('vector', 'index-4');
SELECT * FROM shard_capacity('vector');

-- A lease that ran out counts as expired before anybody has swept.
SELECT shard_renew_slot(3, '1 hour') > now() + interval '59 min' AS renewed;
-- The lease expirer sees none of it before the commit.
BEGIN;
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = 3;
SAVEPOINT late;
SELECT shard_confirm_slot(3, 'late');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO late;
SELECT shard_renew_slot(3, '1 hour');
ROLLBACK TO late;
COMMIT;
SELECT reservation_id, shard_key, slot_no, status FROM shard_reserve_slot('vector', 'index-3', 'acme');
SELECT id, logical_key, status, resource_id FROM shardmaster.shard_reservation ORDER BY id;
SELECT reservation_id FROM shard_reserve_slot('vector', 'index-5', 'acme', '10 min');
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = 6;
SELECT shard_expire_leases() AS expired;
SELECT shard_expire_leases() AS expired;

-- The clock counts, not the time at which the transaction began.
BEGIN;
SELECT reservation_id AS id FROM shard_reserve_slot('vector', 'index-5', 'acme', '10 ms') \gset
SELECT pg_sleep_until(lease_expires_at) FROM shardmaster.shard_reservation WHERE id = :id;
SELECT now() < lease_expires_at AS the_transaction_is_older FROM shardmaster.shard_reservation WHERE id = :id;
SELECT shard_confirm_slot(:id, 'late');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Other strategies: the most room, or by the hash of the key.
SELECT shard_key FROM shard_reserve_slot('vector', 'index-6', 'acme', strategy => 'spread');
SELECT shard_key FROM shard_reserve_slot('vector', 'index-7', 'acme', strategy => 'spread');
SELECT count(DISTINCT shard_key) FROM generate_series(1, 3) n, shard_reserve_slot('vector', 'index-8', 'acme', strategy => 'consistent');

-- A shard that drains takes nothing new; what it has lives on.
SELECT shard_set_status('v1', 'draining');
SELECT shard_key FROM shard_reserve_slot('vector', 'index-10', 'acme');
SELECT shard_key, status, leased, confirmed, available FROM shard_capacity('vector');
SELECT shard_confirm_slot(5, 'r5');
-- No room: what is full, what is draining.
SELECT count(*) FROM generate_series(12, 20) n, shard_reserve_slot('vector', 'index-' || n, 'acme');
SELECT shard_reserve_slot('iceberg', 'table-1', 'acme');
\echo :LAST_ERROR_SQLSTATE
-- A disabled one frees and expires only.
SELECT shard_set_status('v1', 'disabled');
SELECT shard_confirm_slot(id, 'r'), shard_renew_slot(id, '1 min') FROM shardmaster.shard_reservation WHERE shard_id = 1 AND status = 'pending' LIMIT 1;
SELECT shard_free_slot('vector', 'index-3');
SELECT shard_set_status('v1', 'active');

-- Capacities change. A lower one takes nothing away and lets nothing in, until so many
-- slots are free again.
SELECT shard_add('w', kind => 'wide', capacity => 2) > 0 AS added;
SELECT slot_no FROM generate_series(1, 2) n, shard_reserve_slot('wide', 'k' || n, 'acme');
SELECT shard_set_capacity('w', 4);
SELECT slot_no FROM generate_series(3, 4) n, shard_reserve_slot('wide', 'k' || n, 'acme');
SELECT shard_set_capacity('w', 2);
SELECT * FROM shard_capacity('wide');
SELECT count(shard_cancel_slot(id)) FROM shardmaster.shard_reservation WHERE logical_key IN ('k1', 'k2') AND kind = 'wide';
SELECT slot_no FROM shard_reserve_slot('wide', 'k5', 'acme');
SELECT count(shard_cancel_slot(id)) FROM shardmaster.shard_reservation WHERE logical_key = 'k3' AND kind = 'wide';
SELECT slot_no FROM shard_reserve_slot('wide', 'k5', 'acme');
SELECT slot_no FROM shard_reserve_slot('wide', 'k6', 'acme');
SELECT shard_set_capacity('w', NULL);
SELECT slot_no FROM shard_reserve_slot('wide', 'k6', 'acme');
SELECT * FROM shard_capacity('wide');

-- Quotas: leased and confirmed together.
SELECT shard_set_quota('dawn', 'wide', 2);
SELECT count(*) FROM generate_series(1, 2) n, shard_reserve_slot('wide', 'd' || n, 'dawn');
SELECT shard_reserve_slot('wide', 'd3', 'dawn');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_reserve_slot('wide', 'd2', 'dawn') IS NOT NULL AS still_the_same;
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE logical_key = 'd1';
SELECT slot_no IS NOT NULL AS there_is_room_again FROM shard_reserve_slot('wide', 'd3', 'dawn');
SELECT shard_reserve_slot('wide', 'd4', 'dawn');
-- Of many leases that have run out, the tenant's own end before it is refused.
BEGIN;
SELECT count(*) FROM generate_series(1, 9) n, shard_reserve_slot('wide', 'o' || n, 'other');
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 h' WHERE tenant_id = 'other';
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE logical_key = 'd2';
SELECT slot_no IS NOT NULL AS there_is_room_again FROM shard_reserve_slot('wide', 'd5', 'dawn');
ROLLBACK;
SELECT shard_set_quota('dawn', 'wide', 1);
SELECT shard_confirm_slot(id, 'r') FROM shardmaster.shard_reservation WHERE logical_key = 'd3';
SELECT shard_free_slot('wide', 'd3');
SELECT shard_reserve_slot('wide', 'd4', 'dawn');
SELECT shard_set_quota('dawn', 'wide', NULL);
SELECT slot_no IS NOT NULL AS no_quota FROM shard_reserve_slot('wide', 'd4', 'dawn');

-- What tenants use, and have used: seconds from reservation to release.
SELECT shard_set_quota('acme', 'vector', 100);
UPDATE shardmaster.shard_reservation
   SET created_at = '2026-01-01 00:00', confirmed_at = '2026-01-01 00:00', ended_at = '2026-01-02 00:00' WHERE id = 1;
SELECT kind, leased, confirmed, quota, slot_seconds, tenant_id
  FROM shard_tenant_usage('acme', '2026-01-01 12:00', '2026-01-31');
SELECT kind, leased, confirmed, quota, tenant_id FROM shard_tenant_usage() ORDER BY tenant_id, kind;

-- A shard is dropped when it holds nothing; the history of its slots stays.
SELECT shard_drop('w');
UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE kind = 'wide' AND status = 'pending';
SELECT shard_drop('w');
SELECT count(*) > 5 AS in_the_archive FROM shardmaster.shard_reservation_archive WHERE kind = 'wide';
SELECT count(*) > 1 AS still_billed FROM shard_tenant_usage() WHERE kind = 'wide';

-- Mistakes.
SELECT shard_reserve_slot('vector', 'k', NULL);
SELECT shard_reserve_slot('vector', '', 'acme');
SELECT shard_reserve_slot('vector', 'k', 'acme', '0 s');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_reserve_slot('vector', 'k', 'acme', strategy => 'best');
SELECT shard_confirm_slot(4711, 'r');
SELECT shard_confirm_slot(NULL, 'r');
SELECT shard_cancel_slot(4711);
\echo :LAST_ERROR_SQLSTATE
SELECT shard_set_quota('acme', 'vector', -1);

-- Nothing was lost: every slot that is held has one live reservation, and the room that
-- is counted is the room that there is.
SELECT s.shard_key, s.next_slot = count(l.*) AS slots, count(r.id) = count(l.reservation_id) AS held
  FROM shardmaster.shard s
  JOIN shardmaster.shard_slots l ON l.shard_id = s.id
  LEFT JOIN shardmaster.shard_reservation r ON r.id = l.reservation_id AND r.status IN ('pending', 'confirmed')
                                           AND (r.shard_id, r.slot_no) = (l.shard_id, l.slot_no)
 GROUP BY s.id, s.shard_key, s.next_slot ORDER BY 1;
SELECT shard_key, minted - free = leased + confirmed AS adds_up FROM shard_capacity('vector');

-- Only who is granted it may.
SET ROLE app;
SELECT shard_reserve_slot('vector', 'k', 'acme');
RESET ROLE;
GRANT EXECUTE ON FUNCTION shard_reserve_slot(text, text, text, interval, text) TO app;
SET ROLE app;
SELECT status FROM shard_reserve_slot('vector', 'index-10', 'acme');
RESET ROLE;
DROP EXTENSION shardmaster;
