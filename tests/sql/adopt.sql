-- A database that was not made for it is brought under a keyspace, and its first tenant moves.
CREATE EXTENSION shardmaster;
\set SHOW_CONTEXT never
\set VERBOSITY default
SELECT current_database() AS home \gset
CREATE ROLE deployer LOGIN;
GRANT owner TO deployer;
\connect shard_a
CREATE SCHEMA shop AUTHORIZATION owner;
SET ROLE owner;
SET search_path = shop;
CREATE TABLE tenants (id serial PRIMARY KEY, name text NOT NULL);
CREATE TABLE countries (code text PRIMARY KEY, name text);
CREATE TABLE orders (id serial PRIMARY KEY, tenant_id int NOT NULL REFERENCES tenants, country text REFERENCES countries);
CREATE TABLE lines (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, sku text);
CREATE TABLE returns (id serial PRIMARY KEY, line_id int NOT NULL REFERENCES lines);
CREATE TABLE links (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, line_id int REFERENCES lines);
CREATE TABLE notes (id serial PRIMARY KEY, order_id int REFERENCES orders, said text);
CREATE TABLE visits (tenant_id int NOT NULL, page text);
CREATE TABLE "Odd ""Log" (tenant_id int NOT NULL REFERENCES tenants, said text);
CREATE TABLE files (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), owner_type text, owner_id int);
INSERT INTO tenants (name) SELECT 'tenant ' || n FROM generate_series(1, 12) n;
INSERT INTO countries VALUES ('de', 'Germany'), ('fr', 'France');
INSERT INTO orders (tenant_id, country) SELECT 1 + n % 12, 'de' FROM generate_series(1, 240) n;
INSERT INTO lines (order_id, sku) SELECT id, 'sku' FROM orders, generate_series(1, 3);
INSERT INTO returns (line_id) SELECT id FROM lines WHERE id % 5 = 0;
INSERT INTO links (order_id, line_id) SELECT order_id, id FROM lines WHERE id % 7 = 0;
INSERT INTO notes (order_id, said) SELECT id, 'hello' FROM orders WHERE id % 3 = 0;
INSERT INTO visits SELECT 1 + n % 12, '/' FROM generate_series(1, 500) n;
INSERT INTO "Odd ""Log" SELECT 1 + n % 12, 'hello' FROM generate_series(1, 30) n;
RESET ROLE;
ANALYZE;
\connect shard_b
CREATE SCHEMA shop AUTHORIZATION owner;
\connect :home
\set SHOW_CONTEXT never
SELECT shard_add('a', 'dbname=shard_a user=mover', namespace => 'shop') > 0 AS a,
       shard_add('b', 'dbname=shard_b user=mover', namespace => 'shop') > 0 AS b;

-- Mistakes end it before anything is changed.
CALL shard_adopt_database('a', 'tenant_id', 'b');
SELECT shard_login_set('postgres', username => 'deployer');
CALL shard_adopt_database('a', 'tenant_no', 'b');
CALL shard_adopt_database('a', 'tenant_id', 'a');
CALL shard_adopt_database('a', 'tenant_id', 'nowhere');
CALL shard_adopt_database('a', 'tenant_id', 'b', accept => '{orders,unheard}');
CALL shard_adopt_database('a', 'tenant_id', 'b', accept => '{files}');
CALL shard_adopt_database('a', 'tenant_id', 'b', keyspace => 'other');
SELECT shard_keyspace_add('hashed', 'hash', buckets => 4, key_type => 'bigint', shards => '{a}');
CALL shard_adopt_database('a', 'tenant_id', 'b', keyspace => 'hashed');
SELECT shard_keyspace_drop('hashed');
BEGIN;
CALL shard_adopt_database('a', 'tenant_id', 'b');
ROLLBACK;

-- First it is shown.
CALL shard_adopt_database('a', 'tenant_id', 'b');
SELECT shard_survey_sql('a', 'tenant_id', 'b');
SELECT count(*) FROM shard_tables();

-- The script does the same, as far as nobody has to decide.
SELECT shard_table_add('files', NULL, policy => 'global');
\set script `mktemp`
\setenv SCRIPT :script
\setenv HOME_DATABASE :home
\o :script
\pset format unaligned
\pset tuples_only on
SELECT shard_survey_sql('a', 'tenant_id', 'b');
\pset tuples_only off
\pset format aligned
\o
\! psql -X -q -d "$HOME_DATABASE" -f "$SCRIPT" >/dev/null 2>&1 || echo failed; rm -f "$SCRIPT"
SELECT table_name, shard_by FROM shard_tables();
SELECT key, write_shard FROM shard_entries() ORDER BY key LIMIT 2;
-- What is done is left out.
CALL shard_adopt_database('a', 'tenant_id', 'b', accept => '{notes}');
SELECT * FROM shard_query('SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(tenant_id) FROM lines) AS lines, (SELECT count(tenant_id) FROM returns) AS returns,
                                  (SELECT count(tenant_id) FROM links) AS links,
                                  (SELECT count(DISTINCT row_id) FROM visits) AS visits,
                                  (SELECT count(*) FROM countries) AS countries')
           AS (orders bigint, lines bigint, returns bigint, links bigint, visits bigint, countries bigint) ORDER BY orders;
-- The report is a page.
SELECT shard_survey_report('a', 'tenant_id') ~ '^<!DOCTYPE html>' AS page, shard_survey_report('a', 'tenant_id') ~ 'files' AS says;

DROP EXTENSION shardmaster;
\connect shard_a
SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP SCHEMA IF EXISTS shardmaster_agent CASCADE;
\connect shard_b
SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP SCHEMA IF EXISTS shardmaster_agent CASCADE;
DROP OWNED BY deployer;
DROP ROLE deployer;
