-- Tenants take slots of servers that have a capacity.
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE EXTENSION shardmaster;
SELECT shard_add('a', namespace => 'a', capacity => 3), shard_add('b', namespace => 'b', capacity => 5), shard_add('c', namespace => 'c');
CREATE SCHEMA a;
CREATE SCHEMA b;
CREATE TABLE a.account (tenant text, id bigint, PRIMARY KEY (tenant, id));
CREATE TABLE b.account (LIKE a.account INCLUDING ALL);
SELECT shard_table_add('account', shard_by => 'tenant', key_type => 'text');

-- A new tenant goes where the strategy says; asked again, it stays.
SELECT shard_place_tenant('t1'), shard_place_tenant('t1'), shard_place_tenant('t2'), shard_place_tenant('s1', 'spread');
SELECT key, read_shard FROM shard_entries();
SELECT shard_key, capacity, confirmed, available FROM shard_capacity('postgres');
-- An assignment takes a slot too, and gives the old one back.
SELECT shard_assign('t3', 'a') IS NOT NULL AS assigned;
SELECT shard_assign('t4', 'a');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_assign_many('{t4,t5}', 'b') IS NOT NULL AS assigned;
SELECT shard_assign('t5', 'c', force => true) IS NOT NULL AS assigned;
SELECT shard_unassign('t1') IS NOT NULL AS unassigned;
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT shard_place_tenant('t6');
SELECT logical_key, tenant_id, status, resource_id FROM shardmaster.shard_reservation WHERE kind = 'postgres' ORDER BY id;
-- So does a return to an old policy.
SELECT shard_routing_rollback(1) IS NOT NULL AS rolled_back;
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT count(shard_unassign(key)) FROM shard_entries();
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');

-- A split keeps slots of its target as long as it is active.
SELECT shard_assign_many('{x1,x2,x3,x4}', 'b') IS NOT NULL AS assigned;
SELECT shard_split_plan('b', 'a', '{x1,x2,x3,x4}');
SELECT shard_split_plan('b', 'a', '{x1,x2}') AS split \gset
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT shard_split_plan('b', 'a', '{x3,x4}');
-- Neither these slots nor those of tenants are settled by hand.
SELECT shard_cancel_slot(id) FROM shardmaster.shard_reservation WHERE logical_key = 'split 1: default/x1';
SELECT shard_confirm_slot(id, 'r') FROM shardmaster.shard_reservation WHERE logical_key = 'split 1: default/x1';
SELECT shard_free_slot('postgres', 'default/x1');
\echo :LAST_ERROR_SQLSTATE
-- A quota counts tenants' slots too.
SELECT shard_set_quota('x5', 'postgres', 0);
SELECT shard_place_tenant('x5');
SELECT shard_set_quota('x5', 'postgres', NULL);
SELECT shard_place_tenant('x5');
SELECT shard_place_tenant('x6');
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT shard_split_rollback(:split);
SELECT shard_split_wait(:split, 'rolled_back');
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');

-- The plan runs again, and its cutover moves the slots with the keys.
SELECT shard_unassign('x5') IS NOT NULL AS unassigned;
SELECT shard_split_start_dual_write(:split);
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT shard_split_run_backfill(:split);
SELECT shard_split_wait(:split, 'cutover_pending');
SELECT shard_split_cutover(:split);
SELECT shard_split_wait(:split, 'completed');
SELECT shard_split_finish(:split);
SELECT shard_split_wait(:split, 'finished');
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT r.logical_key, s.shard_key, r.status, r.split_id = :split AS by_the_split
  FROM shardmaster.shard_reservation r JOIN shardmaster.shard s ON s.id = r.shard_id
 WHERE r.tenant_id IN ('x1', 'x2') ORDER BY r.id;
SELECT shard_split_redirect_drop(:split);

-- A capacity for a server that had none: who is there takes a slot, also beyond it.
SELECT shard_assign_many('{y1,y2,y3}', 'c') IS NOT NULL AS assigned;
SELECT shard_set_capacity('c', 2);
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres');
SELECT shard_assign('y4', 'c');
SELECT shard_unassign('y1') IS NOT NULL, shard_unassign('y2') IS NOT NULL;
SELECT shard_assign('y4', 'c') IS NOT NULL AS assigned;
SELECT shard_assign('y5', 'c');
SELECT shard_set_capacity('c', NULL);
SELECT shard_assign('y5', 'c') IS NOT NULL AS assigned;
-- No server has room.
SELECT shard_set_status('c', 'draining');
SELECT count(shard_place_tenant('z' || n)) FROM generate_series(1, 10) n;
-- Servers without a capacity: the one that holds least, or most.
SELECT shard_keyspace_add('wide', 'directory');
SELECT shard_add('d', namespace => 'd'), shard_add('e', namespace => 'e'), shard_add('f', namespace => 'f');
SELECT shard_assign_many('{w1,w2}', 'd', 'wide') IS NOT NULL AS assigned;
SELECT shard_place_tenant('w3', 'spread', 'wide') AS w3, shard_place_tenant('w4', 'spread', 'wide') AS w4;
SELECT shard_place_tenant('w5', 'spread', 'wide') AS w5, shard_place_tenant('w6', 'spread', 'wide') AS w6, shard_place_tenant('w7', 'fill_first', 'wide') AS w7;
DROP EXTENSION shardmaster;
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS shardmaster_agent CASCADE;
DROP SCHEMA a, b CASCADE;
