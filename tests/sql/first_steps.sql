-- What somebody meets who begins: names with a typo, what to type next, how to get out again.
CREATE EXTENSION shardmaster;
\set SHOW_CONTEXT never
SELECT current_database() AS home \gset

-- Nobody can be asked yet, or no shard that could be says anything.
SELECT shard_table_add('account', 'tenant', key_type => 'bigint');
SELECT shard_table_drop('account');
CREATE SCHEMA a;
CREATE SCHEMA b;
CREATE TABLE a.account (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id));
CREATE TABLE b.account (LIKE a.account INCLUDING ALL);
CREATE VIEW a.accounts AS SELECT * FROM a.account;
CREATE MATERIALIZED VIEW a.totals AS SELECT tenant, count(*) FROM a.account GROUP BY 1;
CREATE MATERIALIZED VIEW b.totals AS SELECT tenant, count(*) FROM b.account GROUP BY 1;
CREATE SEQUENCE a.numbers;
INSERT INTO a.account SELECT t, n, 'row ' || n FROM generate_series(1, 6) t, generate_series(1, 100) n;
SELECT shard_add('a', namespace => 'a') > 0 AS added, shard_add('b', namespace => 'b') > 0 AS added;
-- One that is away is asked for two seconds at most, and says nothing.
SELECT shard_add('away', 'host=/nowhere dbname=app user=mover') > 0 AS added;
SELECT shard_table_add('accounts', 'tenant');
SELECT shard_table_add('a.totals', 'tenant');
SELECT shard_table_add('numbers', 'tenant');
SELECT shard_table_add('account', 'tennant');
SELECT shard_table_add('accont', 'tenant');
SELECT shard_table_add('account', 'tenant');
-- A shard on another server is asked, too.
SELECT shard_add('far', 'dbname=shard_a user=mover', namespace => 'elsewhere') > 0 AS added;
\connect shard_a
CREATE SCHEMA elsewhere AUTHORIZATION owner;
CREATE TABLE elsewhere.letter (tenant bigint, id bigint PRIMARY KEY);
CREATE VIEW elsewhere.letters AS SELECT * FROM elsewhere.letter;
GRANT USAGE ON SCHEMA elsewhere TO mover;
\connect :home
\set SHOW_CONTEXT never
SELECT shard_table_add('letters', 'tenant');
SELECT shard_table_add('letter', 'tenent');
SELECT shard_table_add('letter', 'tenant');
SELECT shard_table_drop('letter');
SELECT shard_drop('far');
SELECT shard_drop('away');

-- Keys are numbers, as they are.
SELECT shard_assign(1, 'a') > 0 AS assigned;
SELECT shard_of(1), shard_of('1'), shard_of(1::smallint), shard_of(1::int, 'read');
SELECT shard_key, namespace FROM shard_route(1);
SELECT shard_route_at(1, shard_routing_version());
SELECT shard_assign_many('{2,3}', 'a') > 0 AS assigned;
SELECT shard_assign_many(array_agg(tenant::text), 'a') > 0 AS assigned FROM (SELECT DISTINCT tenant FROM a.account WHERE tenant < 4) t;
SELECT shard_assign_keys(array_agg(tenant), 'a') > 0 AS assigned FROM (SELECT DISTINCT tenant FROM a.account WHERE tenant < 5) t;
SELECT shard_assign_keys(ARRAY[4, 4], 'a');
SELECT shard_assign_keys(ARRAY[NULL::bigint], 'a');
SELECT shard_unassign(4) > 0 AS taken_out;
SELECT shard_keyspace_add('ids', 'directory', key_type => 'uuid');
SELECT shard_assign('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, 'b', 'ids'),
       shard_of('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, keyspace => 'ids'),
       shard_of('{a0eebc999c0b4ef8bb6d6bb9bd380a11}', keyspace => 'ids');
SELECT shard_assign_keys(ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']::uuid[], 'b', 'ids');
SELECT shard_place_tenant(9, keyspace => 'default') IS NOT NULL AS placed;

-- Keys that nobody has assigned are where their rows are.
CREATE ROLE regress_reader LOGIN;
GRANT USAGE ON SCHEMA a, b TO regress_reader;
GRANT SELECT ON a.account, b.account TO regress_reader;
SELECT shard_table_drop('accont');
SELECT shard_login_set('regress_reader', username => 'regress_reader');
SELECT shard_grant('regress_reader', 'operator');
INSERT INTO b.account VALUES (6, 1000, 'on two shards'), (7, 1, 'only here');
SET ROLE regress_reader;
SELECT * FROM shard_unassigned() ORDER BY key, shard;
SELECT * FROM shard_assign_found(reason => 'the first look');
SELECT * FROM shard_assign_found();
RESET ROLE;
SELECT key, to_shard, reason FROM shard_routing_history() WHERE reason LIKE 'the first%' ORDER BY key;
DELETE FROM b.account;

-- All kinds, if none is named.
SELECT shard_add('gpu', kind => 'gpu', capacity => 4) > 0 AS added;
SELECT kind, shard_key, status, capacity, confirmed FROM shard_capacity();
SELECT kind, shard_key FROM shard_capacity('gpu');

-- A plan with a table that is not there: what is said helps.
CREATE VIEW b.extra AS SELECT * FROM b.account;
CREATE TABLE a.extra (tenant bigint, id bigint PRIMARY KEY);
SELECT shard_table_add('extra', 'tenant');
SELECT shard_split_plan('a', 'b', '{1,2}') AS split \gset
SELECT check_name, ok, hint FROM shard_split_check(:split) WHERE check_name IN ('summary', 'target: table exists');
SELECT detail ~ '^not ready, \d+ findings?: the amount' AS told FROM shard_split_check(:split) WHERE check_name = 'summary';
SELECT shard_split_start_dual_write(:split);
SELECT shard_split_wait(:split, 'dual_write');
SELECT phase, activity, next_call = format('SELECT * FROM shard_split_check(%s)', :split) AS checks FROM shard_split_metrics(:split);
SELECT shard_table_add('b.account', 'tenant');
SELECT shard_table_drop('extra');
SELECT table_name FROM shard_split_tables(:split);
SELECT detail FROM shard_split_events(:split) WHERE detail LIKE 'table %';
SELECT shard_table_drop('account');
-- Its rows would be left behind without a word.
SELECT check_name, detail, hint FROM shard_split_check(:split) WHERE NOT ok;
SELECT shard_table_add('extra', NULL, policy => 'global');
-- Two lines in the place of forty, and the rest on request.
SELECT regexp_replace(detail, 'about \d+ ([km]?s|min)\M|\d+ kB', '..', 'g') AS summary FROM shard_split_check(:split) WHERE check_name = 'summary';
SELECT count(*) < 6 AS few, count(*) FILTER (WHERE NOT ok) AS wrong FROM shard_split_check(:split);
SELECT count(*) > 15 AS many FROM shard_split_check(:split, with_ok => true);
SELECT shard_split_check(:split, NULL);

-- Taken back, and run again with all tables of the keyspace.
SELECT shard_split_cutover(:split);
SELECT shard_split_redirect_drop(:split);
SELECT shard_split_rollback(:split);
SELECT shard_split_wait(:split, 'rolled_back');
SELECT shard_split_start_dual_write(:split);
SELECT shard_split_run_backfill(:split);
SELECT shard_split_wait(:split, 'cutover_pending');
SELECT shard_split_cutover(:split);
SELECT shard_split_wait(:split, 'completed');
-- It says what is missing, and nobody is at work.
SELECT phase, activity, waiting_for, next_call = format('SELECT shard_split_finish(%s)', :split) AS next, scope FROM shard_split_metrics(:split);
SELECT split_id = :split AS this, "from", "to", moves, phase, waiting_for, next_call = format('SELECT shard_split_finish(%s)', :split) AS next FROM shard_splits;
SELECT split_id = :split AS this, phase FROM shard_splits();
SELECT shard_split_start_dual_write(:split);
SELECT shard_split_map(:split, 'account', 'note', NULL);
SELECT shard_split_wait(:split, 'finished', '1 ms');
CALL shard_split_run(:split, 'rolled_back');
SELECT regexp_replace(shardmaster.split_account(:split, clock_timestamp()), '\d+(\.\d+)?( ms| rows/s)|after [^;]+', '..', 'g') AS account;
SELECT shardmaster.split_line(:split) ~ '^split \d+: completed, 200 rows copied, writers waited at most [\d.]+ ms$' AS line;
SELECT shard_split_finish(:split);
SELECT shard_split_wait(:split, 'finished');
SELECT shard_split_cutover(:split);
SELECT shard_split_rollback(:split);
SELECT shard_split_redirect_drop(:split);

-- A split of many keys is one line, and whole where that is asked for.
SELECT shard_assign_many(array_agg(i::text), 'a') > 0 AS assigned FROM generate_series(1001, 1200) i;
SELECT shard_split_plan('a', 'b', array_agg(i::text)) AS many FROM generate_series(1001, 1200) i \gset
SELECT cardinality(tenants), tenants[50:], scope FROM shard_split_metrics(:many);
SELECT count(*), min(k), max(k) FROM shard_split_keys(:many) k;
SELECT shard_split_keys(0);
SELECT shard_split_rollback(:many);
SELECT shard_split_wait(:many, 'rolled_back');
SELECT shard_split_plan_all('a', 'b') AS everything \gset
SELECT scope ~ '^all, \d+ entries$' AS scope FROM shard_split_metrics(:everything);
SELECT shard_split_rollback(:everything);
SELECT shard_split_wait(:everything, 'rolled_back');

-- A key of a page is not all of a message.
SELECT shard_keyspace_add('names', 'directory');
SELECT shard_assign(repeat('k', 3000), 'a', 'names') > 0 AS assigned;
SELECT shard_assign(repeat('k', 3000), 'b', 'names');

-- Who may see a server's statistics may see these.
CREATE ROLE regress_monitor;
GRANT pg_monitor TO regress_monitor;
SET ROLE regress_monitor;
SELECT count(*) FROM shard_splits;
SELECT count(*) > 0 AS some FROM shard_split_metrics();
SELECT shard_split_finish(1);
RESET ROLE;
SET ROLE regress_reader;
SELECT count(*) FROM shard_splits;
RESET ROLE;
SELECT shard_revoke('regress_reader', 'operator');
SET ROLE regress_reader;
SELECT count(*) FROM shard_splits;
RESET ROLE;

-- A server that runs, and does not know the mover.
SELECT shard_add('nobody', 'dbname=shard_a user=nobody_here') > 0 AS added, shard_add('nothing', 'dbname=nothing_here user=mover') > 0 AS added;
SELECT item, ok, hint FROM shard_check('nobody');
SELECT item, ok, hint FROM shard_check('nothing');

DROP EXTENSION shardmaster;
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS shardmaster_agent CASCADE;
DROP SCHEMA a, b CASCADE;
DROP ROLE regress_reader, regress_monitor;
\connect shard_a
SET client_min_messages = warning;
DROP SCHEMA elsewhere CASCADE;
