ALTER TABLE app.t ADD COLUMN z int
ALTER TABLE app.t RENAME z TO zz
ALTER TABLE app.t DROP COLUMN zz
BEGIN; ALTER TABLE app.t ADD COLUMN y int; ALTER TABLE app.t DROP COLUMN y; COMMIT
BEGIN; SAVEPOINT s; ALTER TABLE app.t ADD COLUMN y int; ROLLBACK TO s; ALTER TABLE app.t ADD COLUMN y text; COMMIT
ALTER TABLE app.t ALTER v TYPE varchar(20)
ALTER TABLE app.t ALTER v TYPE varchar(20) USING v || ''
ALTER TABLE app.t ALTER n TYPE text COLLATE "C"
ALTER TABLE app.t ALTER n TYPE text COLLATE kinds.order_one
ALTER TABLE app.t ALTER u DROP DEFAULT
ALTER TABLE app.t ALTER u SET DEFAULT kinds.outer_one(2)
ALTER TABLE app.t ALTER u SET DEFAULT kinds.outer_one(3)
TRUNCATE app.t
BEGIN; TRUNCATE app.t; TRUNCATE app.t; COMMIT
VACUUM FULL app.t
CLUSTER app.t USING t_pkey
ALTER TABLE app.t SET UNLOGGED
ALTER TABLE app.t SET LOGGED
ALTER TABLE app.t DISABLE TRIGGER shardmaster_1_s_i
ALTER TABLE app.t ENABLE ALWAYS TRIGGER shardmaster_1_s_i
BEGIN; ALTER TABLE app.t DISABLE TRIGGER ALL; ALTER TABLE app.t ENABLE TRIGGER ALL; ALTER TABLE app.t ENABLE ALWAYS TRIGGER shardmaster_1_s_i; COMMIT
ALTER TRIGGER shardmaster_1_s_i ON app.t RENAME TO shardmaster_1_s_x
ALTER TRIGGER shardmaster_1_s_x ON app.t RENAME TO shardmaster_1_s_i
CREATE OR REPLACE FUNCTION shardmaster_agent.capture_1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW;END'
ALTER FUNCTION shardmaster_agent.capture_1() RENAME TO capture_x
ALTER FUNCTION shardmaster_agent.capture_x() RENAME TO capture_1
ALTER SCHEMA shardmaster_agent RENAME TO another_agent
ALTER SCHEMA another_agent RENAME TO shardmaster_agent
CREATE TRIGGER more BEFORE INSERT ON app.q FOR EACH ROW EXECUTE FUNCTION kinds.fires()
ALTER TABLE app.q ENABLE REPLICA TRIGGER own
CREATE OR REPLACE FUNCTION kinds.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW;END'
DROP TRIGGER more ON app.q
CREATE RULE beside AS ON INSERT TO app.q DO ALSO NOTHING
ALTER TABLE app.q DISABLE RULE beside
DROP RULE beside ON app.q
CREATE TABLE app.heir () INHERITS (app.q)
ALTER TABLE app.heir ADD CHECK (kinds.is_right(tenant))
ALTER TABLE app.heir NO INHERIT app.q
ALTER TABLE app.heir INHERIT app.q
DROP TABLE app.heir
ALTER TABLE app.q OWNER TO look_owner
ALTER ROLE look_owner SUPERUSER
ALTER ROLE look_owner NOSUPERUSER
ALTER ROLE look_owner RENAME TO look_renamed
ALTER ROLE look_renamed RENAME TO look_owner
ALTER TABLE app.q ENABLE ROW LEVEL SECURITY
BEGIN; ALTER TABLE app.q RENAME TO q2; ALTER TABLE app.q2 RENAME TO q; COMMIT
ALTER SCHEMA app RENAME TO app2; ALTER SCHEMA app2 RENAME TO app
ALTER TABLE app.refers RENAME TO refers_to
ALTER TABLE app.refers_to SET SCHEMA elsewhere
ALTER SCHEMA elsewhere RENAME TO elsewhere2
ALTER TABLE elsewhere2.refers_to DROP CONSTRAINT refers_tenant_id_fkey
ALTER TABLE elsewhere2.refers_to ADD CONSTRAINT again FOREIGN KEY (tenant, id) REFERENCES app.q NOT VALID
ALTER TABLE elsewhere2.refers_to VALIDATE CONSTRAINT again
ALTER TABLE elsewhere2.refers_to ADD CHECK (kinds.outer_one(id) > 0)
CREATE TABLE app.refers_too (tenant text, id int, FOREIGN KEY (tenant, id) REFERENCES app.q)
CREATE OR REPLACE FUNCTION kinds.inner_one(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 0'
ALTER FUNCTION kinds.inner_one(int) OWNER TO look_other
ALTER ROLE look_other SUPERUSER
ALTER FUNCTION kinds.lower_one(text) RENAME TO lower_two
ALTER FUNCTION kinds.lower_two(text) SET SCHEMA app
CREATE FUNCTION kinds.named(int) RETURNS text LANGUAGE sql AS 'SELECT 1'
CREATE TYPE kinds.named AS (a int)
DROP TYPE kinds.named
CREATE FUNCTION kinds.all_alike(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR kinds.= (LEFTARG = text, RIGHTARG = text, FUNCTION = kinds.all_alike)
ALTER TYPE kinds.mood ADD VALUE 'c'
ALTER TYPE kinds.mood RENAME VALUE 'c' TO 'd'
ALTER TYPE kinds.mood RENAME TO mood2
ALTER TYPE kinds.mood2 RENAME TO mood
ALTER TYPE kinds.pair RENAME ATTRIBUTE a TO aa
ALTER TYPE kinds.pair RENAME TO pair2
ALTER EXTENSION plpgsql ADD TYPE kinds.mood
ALTER EXTENSION plpgsql DROP TYPE kinds.mood
ALTER DOMAIN kinds.inner_domain ADD CONSTRAINT more CHECK (VALUE <> 'k') NOT VALID
ALTER DOMAIN kinds.inner_domain DROP CONSTRAINT more
ALTER DOMAIN kinds.outer_domain SET DEFAULT kinds.named('a')
ALTER COLLATION kinds.order_one RENAME TO order_two
CREATE CAST (kinds.mood AS int) WITH INOUT
DROP CAST (kinds.mood AS int)
CREATE OPERATOR CLASS kinds.more DEFAULT FOR TYPE kinds.pair2 USING hash AS OPERATOR 1 = (record, record)
ALTER OPERATOR CLASS kinds.orders USING btree RENAME TO orders2
ALTER OPERATOR kinds.=== (int, int) SET SCHEMA app
CREATE FUNCTION kinds.is_other(text, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true'; CREATE OPERATOR kinds.==== (LEFTARG = text, RIGHTARG = int, FUNCTION = kinds.is_other); ALTER OPERATOR FAMILY integer_ops USING btree ADD OPERATOR 3 kinds.====(text, int)
ALTER OPERATOR FAMILY kinds.orders USING btree ADD FUNCTION 4 (int, int) btequalimage(oid)
ALTER TYPE kinds.span RENAME TO span2
CREATE STATISTICS app.more ON (kinds.outer_one(id)), u FROM app.t
DROP STATISTICS app.more
CREATE INDEX more ON app.t (kinds.outer_one(id))
DROP INDEX app.more
CREATE INDEX CONCURRENTLY more ON app.t (v)
REINDEX INDEX CONCURRENTLY app.more
ALTER TABLE app.t ADD CONSTRAINT positive CHECK (id > 0) NOT VALID
ALTER TABLE app.t VALIDATE CONSTRAINT positive
ALTER TABLE app.t DROP CONSTRAINT positive
ALTER TABLE app.t ALTER CONSTRAINT t_o_fkey DEFERRABLE
ALTER TABLE app.t DROP CONSTRAINT t_pkey; ALTER TABLE app.t ADD PRIMARY KEY (id, tenant)
ALTER TABLE app.t ALTER g DROP EXPRESSION
ALTER SEQUENCE app.t_s_seq RENAME TO drawn
GRANT USAGE ON SEQUENCE app.drawn TO look_owner
ALTER TABLE app.p ATTACH PARTITION app.p3 FOR VALUES FROM (20) TO (30)
ALTER TABLE app.p DETACH PARTITION app.p3
ALTER TABLE app.p ATTACH PARTITION app.p3 FOR VALUES FROM (20) TO (30)
ALTER TABLE app.p DETACH PARTITION app.p3 CONCURRENTLY
CREATE TABLE app.p4 PARTITION OF app.p FOR VALUES FROM (30) TO (40)
DROP TABLE app.p4
CREATE TABLE app.p22 PARTITION OF app.p2 FOR VALUES FROM (15) TO (18)
BEGIN; ALTER TABLE app.p2 DETACH PARTITION app.p22; ALTER TABLE app.p2 ATTACH PARTITION app.p22 FOR VALUES FROM (15) TO (18); COMMIT
ALTER TABLE app.p DETACH PARTITION app.p2
ALTER TABLE app.p ATTACH PARTITION app.p2 FOR VALUES FROM (10) TO (20)
TRUNCATE app.p21
CREATE RULE beside AS ON DELETE TO app.p21 DO ALSO NOTHING
ALTER TABLE app.p1 OWNER TO look_other
ALTER TABLE app.p1 ADD UNIQUE (val) DEFERRABLE
CREATE TABLE app.above (LIKE app.p) PARTITION BY LIST (tenant); ALTER TABLE app.above ATTACH PARTITION app.p FOR VALUES IN ('a')
ALTER TABLE app.above DETACH PARTITION app.p
ALTER TABLE app.outside ADD CHECK (kinds.outer_one(id) > 0)
ALTER TABLE app.outside OWNER TO look_owner
CREATE TABLE app.outside_heir () INHERITS (app.outside)
CREATE EVENT TRIGGER heard ON ddl_command_end EXECUTE FUNCTION kinds.hears()
ALTER EVENT TRIGGER heard DISABLE
DROP EVENT TRIGGER heard
CREATE SUBSCRIPTION nothing CONNECTION 'dbname=x' PUBLICATION nothing WITH (connect = false, slot_name = NONE); INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) SELECT oid, 'app.t'::regclass, 'i' FROM pg_subscription
DELETE FROM pg_subscription_rel; DROP SUBSCRIPTION nothing
BEGIN; ALTER TABLE app.t ADD COLUMN prepared int; PREPARE TRANSACTION 'prepared'; COMMIT PREPARED 'prepared'
DROP TYPE kinds.pairs CASCADE
