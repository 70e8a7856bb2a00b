-- Routing by hash and by range.
CREATE EXTENSION shardmaster;
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA na; CREATE SCHEMA nb; CREATE SCHEMA nc;
SELECT count(shard_add(name, namespace => 'n' || name)) FROM unnest('{a,b,c}'::text[]) name;

----
-- Hash. As many buckets as shards: hash % N over shard_index.
----
SELECT shard_keyspace_add('plain', 'hash', key_type => 'bigint');
SELECT count(*) FILTER (WHERE shard_of(n.id::text, keyspace => 'plain') <> shard_key) AS wrong
  FROM generate_series(-500, 500) n (id) JOIN shardmaster.shard ON shard_index = shard_for(n.id, 3);
-- More buckets, on shards in turn.
SELECT shard_keyspace_add('h', 'hash', 8, 'uuid', '{a,b}');
SELECT bucket, read_shard, write_shard, status, version FROM shard_entries('h');
SELECT shard_of(id::text, keyspace => 'h') = (CASE shard_for(id, 8) % 2 WHEN 0 THEN 'a' ELSE 'b' END) AS as_hashed
  FROM (VALUES ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid)) v (id);
SELECT shard_assign_bucket(0, 'a', 'h');
SELECT shard_assign_bucket(0, 'c', 'h');
SELECT shard_assign_bucket(0, 'c', 'h', force => true, reason => 'by hand');
SELECT version, key, from_shard, to_shard, reason FROM shard_routing_history('h') WHERE version > 1;
-- Every version can still be read, and made the current one again.
SELECT DISTINCT shard_route_at(id::text, 1, 'h'), shard_route_at(id::text, 2, 'h'), shard_of(id::text, keyspace => 'h')
  FROM (SELECT md5(n::text)::uuid AS id FROM generate_series(1, 100) n) ids WHERE shard_for(id, 8) = 0;
SELECT shard_routing_rollback(1, 'h');
SELECT bucket, read_shard, version FROM shard_entries('h') WHERE bucket < 2;
-- What is wrong is said.
SELECT shard_assign_bucket(8, 'a', 'h');
SELECT shard_assign_bucket(-1, 'a', 'h');
SELECT shard_assign_bucket(0, 'a', 'default');
SELECT shard_assign('00000000-0000-0000-0000-000000000007', 'a', 'h');
SELECT shard_unassign('00000000-0000-0000-0000-000000000007', 'h');
SELECT shard_assign_range(NULL, NULL, 'a', 'h');
SELECT shard_place_tenant('00000000-0000-0000-0000-000000000007', keyspace => 'h');
-- Buckets are no tenants: they take no slots.
SELECT shard_set_capacity('a', 2);
SELECT shard_key, capacity, leased, confirmed, available FROM shard_capacity('postgres') WHERE shard_key = 'a';
SELECT shard_set_capacity('a', NULL);
SELECT shard_of('7', keyspace => 'h');
SELECT shard_keyspace_add('x', 'hash', 0);
SELECT shard_keyspace_add('x', 'hash', 65537);
SELECT shard_keyspace_add('x', 'hash', 4, 'numeric');
SELECT shard_keyspace_add('x', 'hash', 4, shards => '{a,NULL}');
SELECT shard_keyspace_add('x', 'hash', 4, shards => '{a,north}');
-- Without shards: all by hand.
SELECT shard_keyspace_add('x', 'hash', 2, shards => '{}');
SELECT shard_of('some key', keyspace => 'x');
SELECT shard_keyspace_drop('x');
SELECT shard_keyspace_drop('h');

----
-- Ranges: half-open, in the order of the keys; that of texts is of their bytes.
----
SELECT shard_keyspace_add('r', 'range');
SELECT shard_of('a', keyspace => 'r');
SELECT shard_assign_range(NULL, 'm', 'a', 'r');
SELECT shard_assign_range('m', NULL, 'b', 'r');
SELECT shard_assign_range('', 'm', 'a', 'r');
SELECT shard_assign_range('b', 'c', 'a', 'r');
SELECT k, shard_of(k, keyspace => 'r') FROM unnest('{"",B,a,l~,m,z,é}'::text[]) k;
-- What is routed elsewhere needs force; ranges across the bounds are cut.
SELECT shard_assign_range('f', 'q', 'c', 'r');
SELECT shard_assign_range('f', 'q', 'c', 'r', force => true, reason => 'the middle');
SELECT lower, upper, read_shard, write_shard, status, version FROM shard_entries('r');
SELECT * FROM shard_route_range('e', 'g', keyspace => 'r');
SELECT lower, upper, shard_key FROM shard_route_range(NULL, NULL, 'read', 'r');
-- Ranges that touch and live together can be joined.
SELECT shard_assign_range('c', 'f', 'c', 'r', force => true);
SELECT shard_join_ranges('r', 'd', 'e');
SELECT shard_join_ranges('r');
SELECT shard_join_ranges('r');
SELECT lower, upper, read_shard, version FROM shard_entries('r');
SELECT version, key, from_shard, to_shard, reason FROM shard_routing_history('r');
SELECT v, shard_route_at('g', v, 'r'), shard_route_at('z', v, 'r') FROM generate_series(2, 5) v;
SELECT shard_route_at('z', 1, 'r');
SELECT shard_routing_rollback(2, 'r');
SELECT lower, upper, read_shard, version FROM shard_entries('r');
SELECT shard_routing_rollback(1, 'r');
SELECT lower, upper, read_shard, version FROM shard_entries('r');
SELECT shard_route_range('a', 'z', keyspace => 'r');
-- Numbers and uuids have their own order.
SELECT shard_keyspace_add('n', 'range', key_type => 'bigint');
SELECT shard_assign_range(NULL, '-5', 'a', 'n'), shard_assign_range('-5', '10', 'b', 'n'), shard_assign_range('10', '0100', 'c', 'n');
SELECT k, shard_of(k, keyspace => 'n') FROM unnest('{-9223372036854775808,-6,-5,9,10,99}'::text[]) k;
SELECT shard_of('100', keyspace => 'n');
SELECT shard_assign_range('20', '20', 'c', 'n');
SELECT shard_assign_range('30', '20', 'c', 'n');
SELECT shard_assign_range('x', '20', 'c', 'n');
SELECT shard_assign_range('200', NULL, 'north', 'n');
SELECT shard_assign('1', 'a', 'n');
SELECT shard_keyspace_add('u', 'range', key_type => 'uuid');
SELECT shard_assign_range(NULL, '80000000-0000-0000-0000-000000000000', 'a', 'u');
SELECT shard_of('7fffffff-ffff-ffff-ffff-ffffffffffff', keyspace => 'u');
SELECT shard_of('80000000-0000-0000-0000-000000000000', keyspace => 'u');

-- Where to cut: in the middle of the keys, or of the rows.
SELECT shard_range_midpoint('n', '10', '100', 'keyspace'), shard_range_midpoint('n', NULL, NULL, 'keyspace'),
       shard_range_midpoint('u', NULL, NULL, 'keyspace'), shard_range_midpoint('r', 'a', 'c', 'keyspace');
CREATE TABLE nc.event (id bigint PRIMARY KEY);
CREATE TABLE na.event (id bigint PRIMARY KEY);
INSERT INTO nc.event SELECT 10 + i % 90 FROM generate_series(1, 1000) i ON CONFLICT DO NOTHING;
DELETE FROM nc.event WHERE id BETWEEN 40 AND 79;
SELECT shard_table_add('event', 'id', 'n');
SELECT shard_range_midpoint('n', '10', '100');
SELECT shard_range_midpoint('n', '10', '11');
SELECT shard_range_midpoint('n', '0', '50');
SELECT shard_range_midpoint('n', '10', '100', 'guess');
SELECT shard_range_midpoint('plain', '10', '100');

-- The catalog itself lets no range overlap, and leaves no gap.
INSERT INTO shardmaster.routing_entry (keyspace, key, lower, upper, span, read_shard, write_shard, valid_from)
SELECT keyspace, key || '!', lower, upper, span, read_shard, write_shard, 4 FROM shardmaster.routing_entry WHERE key = '[10,100)';
UPDATE shardmaster.routing_entry SET valid_to = 4 WHERE key = '[10,100)';
SELECT lower, upper, read_shard FROM shard_entries('n');
DROP SCHEMA na, nb, nc CASCADE;
DROP EXTENSION shardmaster;
