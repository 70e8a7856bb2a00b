-- Tables of an owner that have everything that the introspection of tables reads.
CREATE SCHEMA app; CREATE SCHEMA kinds; CREATE SCHEMA elsewhere; CREATE SCHEMA shardmaster_agent;
CREATE ROLE look_owner; CREATE ROLE look_other;
CREATE FUNCTION kinds.inner_one(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION kinds.outer_one(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN kinds.inner_one($1);
CREATE FUNCTION kinds.lower_one(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT pg_catalog.lower($1)';
CREATE FUNCTION kinds.named(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION kinds.is_right(text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION kinds.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION kinds.hears() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE COLLATION kinds.order_one (locale = 'C');
CREATE TYPE kinds.mood AS ENUM ('a', 'b');
CREATE DOMAIN kinds.inner_domain AS text COLLATE kinds.order_one CHECK (kinds.is_right(VALUE));
CREATE DOMAIN kinds.outer_domain AS kinds.inner_domain;
CREATE TYPE kinds.pair AS (a int, b kinds.mood);
CREATE TYPE kinds.pairs AS (x kinds.pair, y kinds.pair[]);
CREATE FUNCTION kinds.compares(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($1, $2)';
CREATE FUNCTION kinds.is_equal(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 OPERATOR(pg_catalog.=) $2';
CREATE FUNCTION kinds.is_less(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 OPERATOR(pg_catalog.<) $2';
CREATE OPERATOR kinds.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = kinds.is_equal, COMMUTATOR = OPERATOR(kinds.===));
CREATE OPERATOR kinds.<<< (LEFTARG = int, RIGHTARG = int, FUNCTION = kinds.is_less);
CREATE OPERATOR CLASS kinds.orders FOR TYPE int USING btree AS
    OPERATOR 1 kinds.<<<, OPERATOR 3 kinds.===, FUNCTION 1 kinds.compares(int, int);
CREATE TYPE kinds.span AS RANGE (subtype = int, subtype_opclass = kinds.orders);
CREATE TABLE app.outside (id int PRIMARY KEY);
CREATE TABLE app.t (tenant text NOT NULL, id int, mood kinds.mood, pairs kinds.pairs, span kinds.span, d kinds.outer_domain,
    n text COLLATE kinds.order_one, g text GENERATED ALWAYS AS (kinds.lower_one(tenant)) STORED, o int REFERENCES app.outside,
    v varchar(10), u int DEFAULT kinds.outer_one(1), s serial, PRIMARY KEY (tenant, id), CHECK (kinds.is_right(n)), UNIQUE (tenant, u) DEFERRABLE);
ALTER TABLE app.t ADD CONSTRAINT apart EXCLUDE USING gist (int4range(id, id + 1) WITH &&);
CREATE INDEX expression ON app.t (kinds.outer_one(u));
CREATE STATISTICS app.counted ON id, u FROM app.t;
CREATE TABLE app.p (tenant text, id int, val text, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
CREATE TABLE app.p1 PARTITION OF app.p FOR VALUES FROM (0) TO (10);
CREATE TABLE app.p2 PARTITION OF app.p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE app.p21 PARTITION OF app.p2 FOR VALUES FROM (10) TO (15);
CREATE TABLE app.p3 (tenant text NOT NULL, id int NOT NULL, val text);
CREATE TABLE app.q (tenant text, id int, k int, PRIMARY KEY (tenant, id));
CREATE UNIQUE INDEX by_class ON app.q (k kinds.orders);
CREATE TABLE app.refers (tenant text, id int, FOREIGN KEY (tenant, id) REFERENCES app.q);
CREATE TABLE app.g (b text, tenant text GENERATED ALWAYS AS (kinds.named(b)) STORED, id int, PRIMARY KEY (tenant, id));
CREATE FUNCTION shardmaster_agent.capture_1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER shardmaster_1_s_i AFTER INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION shardmaster_agent.capture_1();
CREATE TRIGGER shardmaster_1_s_p AFTER INSERT ON app.p FOR EACH ROW EXECUTE FUNCTION shardmaster_agent.capture_1();
ALTER TABLE app.t ENABLE ALWAYS TRIGGER shardmaster_1_s_i; ALTER TABLE app.p ENABLE ALWAYS TRIGGER shardmaster_1_s_p;
CREATE TRIGGER own AFTER INSERT ON app.q FOR EACH ROW EXECUTE FUNCTION kinds.fires();
INSERT INTO app.t (tenant, id, u) SELECT 'a', i, i FROM generate_series(1, 50) i;
INSERT INTO app.q SELECT 'a', i, i FROM generate_series(1, 50) i;
