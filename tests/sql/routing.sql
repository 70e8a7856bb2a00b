-- Routing: which shard holds a key, in versions.
CREATE EXTENSION shardmaster;
\set VERBOSITY default
\set SHOW_CONTEXT never

CREATE SCHEMA east;
CREATE SCHEMA west;
CREATE TABLE east.account (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id));
CREATE TABLE east."Order Line" ("Tenant" int, id bigint PRIMARY KEY);
CREATE TABLE east.log (tenant_id text, at date);
SELECT shard_add('east', namespace => 'east') > 0 AS added;
SELECT shard_add('west', namespace => 'west') > 0 AS added;
SELECT shard_add('vectors', kind => 'vector') > 0 AS added;

----
-- Tables. A name without schema is in each shard's namespace, one with a schema is in
-- that schema on every shard. The first one that is found here says what type keys have.
----
SELECT shard_table_add('account', 'tenant_id');
SELECT shard_table_add('"Order Line"', 'Tenant');
SELECT shard_table_add('Public.Elsewhere', 'tenant_id');
SELECT * FROM shard_tables();
SELECT shard_table_add('ACCOUNT', 'tenant_id');
SELECT shard_table_add('account', 'no_such');
SELECT shard_table_add('log', 'tenant_id');
SELECT shard_table_add('other', 'tenant_id', key_type => 'uuid');
SELECT shard_table_add('other', 'tenant_id', 'no_such');
SELECT shard_table_add('a.b.c', 'tenant_id');
-- No catalog is a table whose rows may move.
SELECT shard_table_add('pg_catalog.pg_authid', 'rolpassword');
SELECT shard_table_add('shardmaster.split_plan', 'secret');
SELECT shard_table_add('two words', 'tenant_id');
SELECT shard_table_add('t', '');
SELECT shard_table_add(NULL, 'tenant_id');
SELECT shard_table_add('t', NULL);
-- In one keyspace only, however it is written: the namespaces of shards are east and west.
SELECT shard_keyspace_add('second', 'directory');
SELECT shard_table_add('account', 'tenant_id', 'second');
SELECT shard_table_add('EAST."account"', 'tenant_id', 'second');
SELECT shard_table_add('west.account', 'tenant_id');
SELECT shard_table_add('east."Order Line"', 'Tenant', 'second');
SELECT shard_table_add('"public".elsewhere', 'tenant_id', 'second');
SELECT shard_table_add('elsewhere', 'tenant_id', 'second');
SELECT shard_table_drop('elsewhere', 'second');
SELECT shard_keyspace_drop('second');
SELECT shard_table_drop('public.elsewhere');
SELECT shard_table_drop('public.elsewhere');
SELECT table_name FROM shard_tables();
SELECT * FROM shard_tables('no_such');

----
-- Assignments. A key is given as text and kept in the one form that its type gives it.
----
SELECT shard_routing_version();
SELECT shard_assign('7', 'east', reason => 'first customer');
SELECT shard_assign('8', 'west');
SELECT shard_of('7'), shard_of('007'), shard_of(' 7 ', 'read');
SELECT * FROM shard_route('8');
-- The same again changes nothing.
SELECT shard_assign('007', 'east');
-- Many keys, one version.
SELECT shard_assign_many(ARRAY['10', '11', '012'], 'east', reason => 'import');
SELECT shard_assign_many(ARRAY['12', '13'], 'east');
SELECT * FROM shard_entries();

-- What is wrong is said, and nothing is changed.
SELECT shard_assign('seven', 'east');
SELECT shard_assign('99999999999999999999', 'east');
SELECT shard_assign('1', 'north');
SELECT shard_assign('1', 'vectors');
SELECT shard_assign('1', 'east', 'no_such');
SELECT shard_assign(NULL, 'east');
SELECT shard_assign('1', NULL);
SELECT shard_assign('1', 'east', NULL);
SELECT shard_assign('1', 'east', force => NULL);
SELECT shard_assign_many(NULL, 'east');
SELECT shard_assign_many('{}', 'east');
SELECT shard_assign_many(ARRAY['1', NULL], 'east');
SELECT shard_assign_many(ARRAY['1', '2', '01', '3', '002'], 'east');
SELECT shard_set_status('west', 'disabled');
SELECT shard_assign('1', 'west');
SELECT shard_set_status('west', 'active');
SELECT shard_routing_version();

-- An assignment moves no rows: where a key is routed elsewhere it must be forced.
SELECT shard_assign_many(ARRAY['7', '8', '10'], 'west');
SELECT shard_assign('7', 'west', force => true, reason => 'the rows were moved by hand');
SELECT shard_of('7');
SELECT shard_unassign('13');
SELECT shard_unassign('13');
SELECT shard_unassign(NULL);

----
-- Lookup indexes.
----
SELECT shard_of('13');
SELECT shard_of('x');
SELECT shard_of('7', 'both');
SELECT shard_of('7', keyspace => 'no_such');
SELECT shard_of(NULL);
SELECT shard_of('7', NULL);
SELECT shard_of('7', 'read', NULL);
SELECT * FROM shard_route('13');
SELECT * FROM shard_route(NULL);

----
-- History: every version can be read, and be returned to.
----
SELECT version, key, from_shard, to_shard, reason, changed_by = session_user AS by_me, split_id
  FROM shard_routing_history();
SELECT shard_route_at('7', 1), shard_route_at('007', 5);
SELECT shard_route_at('8', 1);
SELECT shard_route_at('8', 99);
SELECT shard_route_at('8', NULL);
SELECT shard_routing_rollback(2);
SELECT key, read_shard, version FROM shard_entries();
SELECT version, key, from_shard, to_shard, reason FROM shard_routing_history() WHERE version = 7;
-- Back to where it is changes nothing; version 0 is the beginning.
SELECT shard_routing_rollback(7);
SELECT shard_routing_rollback(0);
SELECT count(*) FROM shard_entries();
SELECT shard_routing_rollback(7);
SELECT shard_routing_rollback(10);
SELECT shard_routing_rollback(-1);
SELECT shard_routing_rollback(NULL);
SELECT shard_routing_rollback(1, 'no_such');

----
-- A split's keys are left alone. Here the catalog says what a split would.
----
INSERT INTO shardmaster.split_plan (id, keyspace, source_shard, target_shard, tenants, token, goal)
VALUES (1001, 'default', 'east', 'west', '{7}', '', 'dual_write');
INSERT INTO shardmaster.split_key (split_id, keyspace, key) VALUES (1001, 'default', '7');
SELECT shard_assign('7', 'west', force => true);
SELECT shard_assign_many(ARRAY['8', '07'], 'west');
SELECT shard_unassign('7');
SELECT shard_assign('9', 'west');
SELECT shard_routing_rollback(3);
SELECT shard_table_add('t', 'tenant_id');
SELECT shard_table_drop('account');
SELECT shard_assign('8', 'west');

-- While a cutover holds writes back, reads go on at the source, and writes wait.
UPDATE shardmaster.routing_entry SET write_shard = 'west', status = 'disabled' WHERE key = '7' AND valid_to IS NULL;
SELECT key, read_shard, write_shard, status FROM shard_entries() WHERE key = '7';
SELECT shard_of('7', 'read');
SET shardmaster.route_wait_timeout = '20ms';
SELECT shard_of('7');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM shard_route('007', 'write');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT shard_of('7', 'read');
SELECT shard_of('7');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- A waiting write is cancelled like any statement.
SET shardmaster.route_wait_timeout = '1min';
SET statement_timeout = '50ms';
SELECT shard_of('7');
RESET statement_timeout;
RESET shardmaster.route_wait_timeout;

-- A rollback of routing does not undo a split: the rows are where it took them.
UPDATE shardmaster.routing_entry SET read_shard = 'west', status = 'active' WHERE key = '7' AND valid_to IS NULL;
UPDATE shardmaster.routing_version SET split_id = 1001 WHERE version = 9;
DELETE FROM shardmaster.split_key;
UPDATE shardmaster.split_plan SET phase = 'rolled_back', goal = 'rolled_back';
SELECT shard_routing_rollback(8);

----
-- Other keyspaces have keys, tables and versions of their own.
----
SELECT shard_keyspace_add('devices', 'directory', key_type => 'uuid');
SELECT shard_assign('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'east', 'devices');
SELECT shard_of('{a0eebc999c0b4ef8bb6d6bb9bd380a11}', keyspace => 'devices');
SELECT key FROM shard_entries('devices');
SELECT shard_routing_version('devices');
SELECT shard_keyspace_add('devices', 'directory');
SELECT shard_keyspace_add('default', 'directory');
SELECT shard_keyspace_add('x', 'list');
SELECT shard_keyspace_add('x', 'directory', 16);
SELECT shard_keyspace_add('x', 'directory', shards => '{east}');
SELECT shard_keyspace_add('x', 'directory', key_type => 'timestamptz');
SELECT shard_keyspace_add('', 'directory');
SELECT shard_keyspace_add(NULL, 'directory');
SELECT shard_keyspace_add('x', NULL);
-- Numbers and padded strings have one form, too.
SELECT shard_keyspace_add('amounts', 'directory', key_type => 'numeric');
SELECT shard_assign('1.50', 'east', 'amounts'), shard_of('1.5', keyspace => 'amounts'), shard_of('01.500', keyspace => 'amounts');
SELECT shard_keyspace_add('codes', 'directory', key_type => 'char');
SELECT shard_assign('ab ', 'east', 'codes'), shard_of('ab', keyspace => 'codes');
-- They are no texts: of those two may differ in blanks alone.
CREATE TABLE east.code (code text PRIMARY KEY);
SELECT shard_table_add('code', 'code', 'codes');
SELECT shard_table_drop('code', 'codes');

SELECT shard_keyspace_drop('devices');
SELECT shard_table_add('device', 'id', 'devices');
SELECT shard_keyspace_drop('devices');
SELECT shard_table_drop('device', 'devices');
SELECT shard_unassign('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'devices');
SELECT shard_keyspace_drop('devices');
SELECT shard_keyspace_drop('devices');
SELECT shard_keyspace_drop('default');
SELECT shard_keyspace_drop(NULL);

----
-- A key type that comes late must fit the keys that are there.
----
DROP EXTENSION shardmaster;
CREATE EXTENSION shardmaster;
SELECT shard_add('east', namespace => 'east') > 0 AS added;
SELECT shard_assign('007', 'east');
-- Nothing here says what type the column of a table on other servers has: text, until
-- a table or a caller says better.
SELECT shard_table_add('remote', 'tenant_id');
SELECT shard_table_add('account', 'tenant_id');
SELECT shard_unassign('007');
SELECT shard_table_add('account', 'tenant_id');
SELECT shard_assign('007', 'east');
SELECT key FROM shard_entries() WHERE shard_of('7') = 'east';

----
-- Programs tell errors by their SQLSTATE.
CREATE FUNCTION state_of(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE query;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
----
SELECT state_of(q), q FROM unnest(ARRAY[
    $$SELECT shard_of(NULL)$$,
    $$SELECT shard_of('1')$$,
    $$SELECT shard_of('x')$$,
    $$SELECT shard_of('1', 'both')$$,
    $$SELECT shard_of('1', keyspace => 'no_such')$$,
    $$SELECT shard_assign('1', 'north')$$,
    $$SELECT shard_assign_many('{}', 'east')$$,
    $$SELECT shard_assign_many('{1,1}', 'east')$$,
    $$SELECT shard_assign_many('{1,NULL}', 'east')$$,
    $$SELECT shard_unassign('1')$$,
    $$SELECT shard_route_at('7', 99)$$,
    $$SELECT shard_routing_rollback(99)$$,
    $$SELECT shard_keyspace_add('default', 'directory')$$,
    $$SELECT shard_keyspace_add('h', 'heap')$$,
    $$SELECT shard_keyspace_drop('default')$$,
    $$SELECT shard_keyspace_drop('no_such')$$,
    $$SELECT shard_table_add('account', 'tenant_id')$$,
    $$SELECT shard_table_add('account', 'no_such')$$,
    $$SELECT shard_table_drop('no_such')$$]) q;
DROP FUNCTION state_of;

----
-- A client needs the right to call, and no right on anything else.
----
CREATE ROLE regress_shard_client;
GRANT EXECUTE ON FUNCTION shard_of(text, text, text), shard_route(text, text, text) TO regress_shard_client;
SET SESSION AUTHORIZATION regress_shard_client;
SELECT shard_of('7');
SELECT shard_key, routing_version FROM shard_route('7');
SELECT shard_assign('8', 'east');
SELECT * FROM shardmaster.routing_entry;
RESET SESSION AUTHORIZATION;

-- Who changed routing is the one who logged in.
CREATE ROLE regress_shard_operator;
GRANT EXECUTE ON FUNCTION shard_assign(text, text, text, boolean, text) TO regress_shard_operator;
SET SESSION AUTHORIZATION regress_shard_operator;
SELECT shard_assign('8', 'east');
RESET SESSION AUTHORIZATION;
SELECT version, key, changed_by FROM shard_routing_history() WHERE key = '8';
-- Nothing but shard_for may be called by everybody.
SELECT p.proname
  FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
 WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster') AND d.deptype = 'e'
   AND d.classid = 'pg_proc'::regclass AND p.proname <> 'shard_for'
   AND has_function_privilege('regress_shard_client', p.oid, 'EXECUTE')
   AND p.proname NOT IN ('shard_of', 'shard_route')
 ORDER BY 1;

DROP EXTENSION shardmaster;
SET client_min_messages = warning;
DROP SCHEMA east, west CASCADE;
DROP ROLE regress_shard_client, regress_shard_operator;
