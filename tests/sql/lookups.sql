-- Lookup indexes by another column: how they are said, and what the master makes of pairs that are there.
CREATE EXTENSION shardmaster;
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA na; CREATE SCHEMA nb;
CREATE TABLE na.users (tenant int, email text, PRIMARY KEY (tenant, email));
SELECT count(shard_add(name, namespace => 'n' || name)) FROM unnest('{a,b}'::text[]) name;
SELECT shard_table_add('users', 'tenant');
SELECT shard_assign('1', 'a'), shard_assign('2', 'b');

SELECT shard_keyspace_add('emails', 'lookup');
SELECT shard_keyspace_add('emails', 'other');
SELECT shard_keyspace_add('emails', 'lookup', of => 'default');
SELECT shard_keyspace_add('emails', 'directory');
SELECT shard_table_add('orders', 'email', 'emails');
SELECT shard_table_add('users', 'mail', 'emails');
SELECT shard_table_add('users', 'tenant', 'emails');
-- Of texts that differ in blanks at their end a char would make one.
SELECT shard_keyspace_add('codes', 'lookup', of => 'default', key_type => 'char');
SELECT shard_table_add('users', 'email', 'codes');
SELECT shard_keyspace_drop('codes');

-- Nothing is installed by a transaction that is not committed.
BEGIN;
SELECT shard_table_add('users', 'email', 'emails');
SELECT table_name, shard_by FROM shard_tables('emails');
INSERT INTO shardmaster.lookup_shard (lookup, shard_key, state) SELECT 'emails', shard_key, 'filled' FROM shardmaster.shard;
INSERT INTO shardmaster.lookup_entry VALUES ('emails', 'x@a', '1', true, NULL, 1), ('emails', 'y@b', '2', true, NULL, 1);
SELECT shard_key, routing_version, namespace FROM shard_route('x@a', 'write', 'emails');
SELECT shard_of('y@b', 'read', 'emails'), shard_lookup('y@b', 'emails');
-- What is kept is forgotten with the owner.
UPDATE shardmaster.lookup_entry SET owner = '1' WHERE key = 'y@b';
SELECT shard_of('y@b', 'read', 'emails'), shard_lookup('y@b', 'emails');
SAVEPOINT s;
SELECT shard_lookup('z@b', 'emails');
ROLLBACK TO s;
SELECT shard_lookup_claim('z@b', '02', 'emails') > now() AS is_claimed;
SELECT shard_of('z@b', 'write', 'emails'), shard_lookup('z@b', 'emails');
SELECT shard_lookup_claim('x@a', '2', 'emails');
ROLLBACK TO s;
SELECT shard_table_drop('users');
ROLLBACK TO s;
SELECT shard_keyspace_drop('emails');
ROLLBACK TO s;
SELECT shard_entries('emails');
ROLLBACK TO s;
SELECT keyspace, "of", table_name, column_name, shard_key, state FROM shard_lookups();
SELECT shard_table_drop('users', 'emails');
SELECT count(*) FROM shardmaster.lookup_entry;
SELECT lookup, shard_key FROM shardmaster.lookup_removal ORDER BY shard_key;
ROLLBACK;
SELECT shard_keyspace_drop('emails');
SELECT shard_keyspace_drop('emails');
DROP SCHEMA na, nb CASCADE;
DROP EXTENSION shardmaster;
