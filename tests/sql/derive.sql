-- A column with the tenant for tables that reach it through a foreign key.
CREATE EXTENSION shardmaster;
CREATE ROLE derive_login LOGIN;
CREATE SCHEMA shop AUTHORIZATION derive_login;
SET ROLE derive_login;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, tenant text NOT NULL);
CREATE TABLE shop.lines (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES shop.orders, sku text);
CREATE TABLE shop.returns (id bigint PRIMARY KEY, line_id bigint REFERENCES shop.lines, n int GENERATED ALWAYS AS (1) STORED);
CREATE TABLE shop."Odd ""Name" (id int PRIMARY KEY, "Of'Order" bigint NOT NULL REFERENCES shop.orders) PARTITION BY RANGE (id);
CREATE TABLE shop.odd_1 PARTITION OF shop."Odd ""Name" FOR VALUES FROM (0) TO (10);
CREATE TABLE shop.odd_2 PARTITION OF shop."Odd ""Name" FOR VALUES FROM (10) TO (20);
CREATE TABLE shop.twice (id int PRIMARY KEY, order_id bigint REFERENCES shop.orders, FOREIGN KEY (order_id) REFERENCES shop.orders);
CREATE TABLE shop.parent (id int, order_id bigint REFERENCES shop.orders);
CREATE TABLE shop.heir (a int) INHERITS (shop.parent);
CREATE VIEW shop.seen AS SELECT * FROM shop.lines;
RESET ROLE;
INSERT INTO shop.orders VALUES (1, 'acme'), (2, 'bolt');
INSERT INTO shop.lines SELECT n, 1 + n % 2, 'sku' FROM generate_series(1, 6) n;
INSERT INTO shop.returns VALUES (1, 3), (2, NULL);
INSERT INTO shop."Odd ""Name" SELECT n, 1 FROM generate_series(1, 19) n;
SELECT shard_add('here', namespace => 'shop');
SELECT shard_table_add('orders', 'tenant', key_type => 'text');

-- What cannot be derived is refused before anything is changed.
SELECT shard_table_derive(NULL, 'tenant', '{order_id}');
SELECT shard_table_derive('nothing', 'tenant', '{order_id}');
SELECT shard_table_derive('seen', 'tenant', '{order_id}');
SELECT shard_table_derive('heir', 'tenant', '{order_id}');
SELECT shard_table_derive('odd_1', 'tenant', '{id}');
SELECT shard_table_derive('lines', 'tenant', '{sku}');
SELECT shard_table_derive('lines', 'tenant', '{}');
SELECT shard_table_derive('twice', 'tenant', '{order_id}');
SELECT shard_table_derive('returns', 'tenant', '{line_id}');
SELECT shard_table_derive('lines', 'sku', '{order_id}', value_column => 'id');
SELECT shard_table_derive('returns', 'n', '{line_id}', value_column => 'id');
ALTER TABLE shop.lines ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT shard_table_derive('lines', 'tenant', '{order_id}');
ALTER TABLE shop.lines DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
SELECT shard_table_derive('lines', 'tenant', '{order_id}', keyspace => 'other');
SELECT shard_table_derive_drop('lines');
SELECT shard_job_pause(1), shard_job_retry(2);
SELECT count(*) FROM shard_jobs();

CREATE PROCEDURE wait_for_jobs() LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM shard_jobs() WHERE state = 'running') LOOP
        COMMIT;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;

-- One after the other: from the top down.
SELECT shard_table_derive('lines', 'tenant', '{order_id}');
SELECT shard_table_derive('lines', 'tenant', '{order_id}');
CALL wait_for_jobs();
SELECT job_id, kind, object, state, shard, step, waiting_for, error FROM shard_jobs();
-- Another call makes what a shard lacks.
SELECT shard_table_derive('lines', 'tenant', '{order_id}', value_column => 'id');
ALTER TABLE shop.lines DISABLE TRIGGER zz_shardmaster_derive_51eccfe7e9a32af0_insert;
SELECT shard_table_derive('lines', 'tenant', '{order_id}');
CALL wait_for_jobs();
SELECT state, step, error FROM shard_jobs() WHERE job_id = 2;
DROP TRIGGER zz_shardmaster_derive_51eccfe7e9a32af0_insert ON shop.lines;
SELECT shard_job_retry(2);
CALL wait_for_jobs();
SELECT shard_table_add('lines', 'tenant');
SELECT shard_table_derive('returns', 'tenant', '{line_id}'), shard_table_derive('"Odd ""Name"', 'tenant', ARRAY['"Of''Order"']);
CALL wait_for_jobs();
SELECT * FROM shop.lines ORDER BY id;
SELECT * FROM shop.returns ORDER BY id;
SELECT tenant, count(*) FROM shop."Odd ""Name" GROUP BY 1;
SELECT attrelid::regclass, attnotnull FROM pg_attribute WHERE attname = 'tenant' AND attrelid::regclass::text LIKE 'shop.%' ORDER BY 1;
SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE tgname ~ '^zzz?_shardmaster' AND tgparentid = 0 ORDER BY 1, 2;
SELECT indrelid::regclass, indisvalid FROM pg_index WHERE indexrelid::regclass::text LIKE '%shardmaster_derive%' OR indrelid = 'shop."Odd ""Name"'::regclass ORDER BY 1, 2;

-- New rows, rows that go elsewhere, and an order that changes its tenant. What the client says does not count.
INSERT INTO shop.lines VALUES (7, 2, 'new', NULL), (8, 2, 'new', 'acme');
UPDATE shop.lines SET order_id = 1 WHERE id = 7;
INSERT INTO shop.returns (id, line_id) VALUES (3, 8), (4, NULL);
INSERT INTO shop.returns (id, line_id, tenant) VALUES (5, NULL, 'kept');
UPDATE shop.orders SET tenant = 'corp' WHERE id = 2;
SELECT id, tenant FROM shop.lines WHERE id > 6 ORDER BY id;
SELECT id, tenant FROM shop.returns ORDER BY id;
-- A line that goes to another order takes along what leads to it.
UPDATE shop.lines SET order_id = 1 WHERE id = 8;
SELECT id, tenant FROM shop.returns WHERE line_id = 8;
-- So it does if a trigger leads it there.
CREATE FUNCTION shop.back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.order_id := 2; RETURN NEW; END';
CREATE TRIGGER back BEFORE UPDATE OF sku ON shop.lines FOR EACH ROW EXECUTE FUNCTION shop.back();
UPDATE shop.lines SET sku = 'back' WHERE id = 8;
SELECT l.tenant, r.tenant FROM shop.lines l JOIN shop.returns r ON r.line_id = l.id WHERE l.id = 8;
DROP TRIGGER back ON shop.lines;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE shop.orders SET tenant = 'dawn' WHERE id = 2;
ROLLBACK;

-- A column that was there keeps its values only if they are right.
ALTER TABLE shop.twice DROP CONSTRAINT twice_order_id_fkey1, ADD tenant text;
INSERT INTO shop.twice VALUES (1, 1, 'acme'), (2, 1, 'other'), (3, 1, NULL);
SELECT shard_table_derive('twice', 'tenant', '{order_id}') AS job \gset
CALL wait_for_jobs();
SELECT state, step, error, hint FROM shard_jobs() WHERE job_id = :job;
UPDATE shop.twice SET tenant = NULL WHERE id = 2;
SELECT shard_job_retry(:job);
CALL wait_for_jobs();
SELECT * FROM shop.twice ORDER BY id;
SELECT shard_table_derive_drop('twice') > 0 AS asked;
CALL wait_for_jobs();
SELECT * FROM shop.twice WHERE id = 1;

-- A shard that comes later gets the tables, and fills its own columns.
CREATE SCHEMA later AUTHORIZATION derive_login;
SELECT shard_add('later', namespace => 'later');
SELECT shard_login_set('postgres', username => 'derive_login');
SELECT count(*) > 5 AS made FROM shard_schema_copy('here', 'later', also => '{returns}');
CALL wait_for_jobs();
SELECT object, state, error FROM shard_jobs() WHERE job_id > 4;
INSERT INTO later.orders VALUES (1, 'other shard');
INSERT INTO later.lines VALUES (1, 1, 'sku');
SELECT tenant FROM later.lines;

-- A table without a primary key gets one: of the columns of a unique index, or of a column of its own.
SET ROLE derive_login;
CREATE TABLE shop.bare (n int);
CREATE TABLE shop.seen_once (who text NOT NULL, day date NOT NULL, n int);
CREATE UNIQUE INDEX seen_once_key ON shop.seen_once (who, day);
CREATE TABLE shop.taken (code text NOT NULL UNIQUE, n int);
CREATE TABLE shop.parts (day date NOT NULL, place int, n int) PARTITION BY RANGE (day);
CREATE TABLE shop.parts_1 PARTITION OF shop.parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01') PARTITION BY LIST (place);
CREATE TABLE shop.parts_1_1 PARTITION OF shop.parts_1 FOR VALUES IN (1);
CREATE TABLE shop.parts_2 PARTITION OF shop.parts FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE shop.by_hash (n int, m int) PARTITION BY HASH ((n + m));
CREATE TABLE shop.odd_id (row_id int);
RESET ROLE;
INSERT INTO shop.bare SELECT n FROM generate_series(1, 1000) n;
INSERT INTO shop.seen_once VALUES ('a', '2026-01-01', 1);
INSERT INTO shop.taken VALUES ('a', 1);
INSERT INTO shop.parts SELECT date '2026-01-01' + n, 1, n FROM generate_series(0, 50) n;
SELECT shard_table_identify(NULL);
SELECT shard_table_identify('nothing');
SELECT shard_table_identify('orders');
SELECT shard_table_identify('heir');
SELECT shard_table_identify('by_hash');
SELECT shard_table_identify('odd_id');
SELECT shard_table_identify('parts');
ALTER TABLE shop.parts ALTER COLUMN place SET NOT NULL;
SELECT shard_table_identify(t) > 0 AS asked FROM unnest('{bare,seen_once,taken,parts}'::text[]) t;
SELECT shard_table_identify('bare') > 0;
CALL wait_for_jobs();
SELECT kind, object, state, error FROM shard_jobs() WHERE kind = 'identify' ORDER BY job_id;
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE contype = 'p' AND conrelid::regclass::text ~ '^shop.(bare|seen_once|taken|parts)' ORDER BY 1;
INSERT INTO shop.bare VALUES (1001);
INSERT INTO shop.parts VALUES ('2026-01-05', 1, 100);
SELECT count(*) = count(DISTINCT row_id) AS identified FROM shop.bare;
SELECT count(*) = count(DISTINCT row_id) AS identified FROM shop.parts;
SELECT shard_table_identify('bare');
-- Who waits for a job is told why it does not end.
\set SHOW_CONTEXT never
CALL shard_job_wait(0);
CALL shard_job_wait(1, NULL);
BEGIN;
CALL shard_job_wait(1);
ROLLBACK;
SELECT shard_table_derive('lines', 'tenant', '{order_id}') AS job \gset
SELECT shard_job_pause(:job);
\set VERBOSITY sqlstate
CALL shard_job_wait(:job);
\set VERBOSITY default
SELECT shard_job_retry(:job);
CALL shard_job_wait(:job);

-- It is taken back, from the bottom up.
SELECT shard_table_derive_drop('lines');
SELECT shard_table_drop('lines');
SELECT shard_table_derive_drop('lines');
SELECT shard_table_derive_drop('returns'), shard_table_derive_drop('"Odd ""Name"');
CALL wait_for_jobs();
SELECT shard_table_derive_drop('lines');
CALL wait_for_jobs();
SELECT job_id, kind, object, state, error FROM shard_jobs() ORDER BY job_id;
SELECT count(*) FROM pg_trigger WHERE tgname ~ '^zzz?_shardmaster';
SELECT proname FROM pg_proc WHERE proname LIKE 'shardmaster_derive%';
SELECT * FROM shop.lines ORDER BY id LIMIT 1;

DROP PROCEDURE wait_for_jobs();
DROP EXTENSION shardmaster;
DROP SCHEMA shop, later CASCADE;
DROP ROLE derive_login;
