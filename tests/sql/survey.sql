-- What a database is like before it is sharded.
CREATE EXTENSION shardmaster;
\set SHOW_CONTEXT never
\set VERBOSITY default
SELECT current_database() AS home \gset
CREATE SCHEMA old;
SELECT shard_add('old', namespace => 'old') > 0 AS added;

-- Nothing is there yet.
SELECT * FROM shard_survey('old', namespaces => '{old}');

CREATE TABLE old.organization (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE TABLE old.country (code text PRIMARY KEY, name text);
CREATE TABLE old.person (id bigserial PRIMARY KEY, email text UNIQUE);
CREATE TABLE old.member (organization_id bigint NOT NULL REFERENCES old.organization, person bigint NOT NULL REFERENCES old.person,
    PRIMARY KEY (organization_id, person));
CREATE TABLE old.project (id bigserial PRIMARY KEY, organization_id bigint NOT NULL REFERENCES old.organization,
    country text REFERENCES old.country, title text);
CREATE TABLE old.task (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), project bigint NOT NULL REFERENCES old.project, state text);
CREATE TABLE old.checklist (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), task uuid NOT NULL UNIQUE REFERENCES old.task);
CREATE TABLE old.comment (id bigserial PRIMARY KEY, project bigint NOT NULL REFERENCES old.project, task uuid REFERENCES old.task);
CREATE TABLE old.note (id bigserial PRIMARY KEY, project bigint REFERENCES old.project);
CREATE TABLE old.attachment (id uuid PRIMARY KEY, target_type text, target_id bigint);
CREATE TABLE old.plan (id bigserial PRIMARY KEY, project bigint NOT NULL REFERENCES old.project, first_step bigint);
CREATE TABLE old.step (id bigserial PRIMARY KEY, plan bigint NOT NULL REFERENCES old.plan);
ALTER TABLE old.plan ADD FOREIGN KEY (first_step) REFERENCES old.step;
CREATE TABLE old.invoice (id bigserial PRIMARY KEY, organization_id bigint NOT NULL REFERENCES old.organization,
    number text UNIQUE, project bigint REFERENCES old.project, seen xid, rights aclitem[]);
ALTER TABLE old.invoice ADD CONSTRAINT has_number CHECK (number <> '') NOT VALID;
CREATE TABLE old.event (organization_id bigint, day date NOT NULL, body text) PARTITION BY RANGE (day);
CREATE TABLE old.event_1 PARTITION OF old.event FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE old.event_2 PARTITION OF old.event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE VIEW old.totals AS SELECT organization_id AS customer, count(*) AS total FROM old.invoice GROUP BY 1;
CREATE SEQUENCE old.draws;
CREATE FUNCTION old.stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER stamp BEFORE INSERT ON old.invoice FOR EACH ROW EXECUTE FUNCTION old.stamp();

INSERT INTO old.organization (name) SELECT 'customer ' || n FROM generate_series(1, 4) n;
INSERT INTO old.country VALUES ('de', 'Germany');
INSERT INTO old.person (email) SELECT n || '@example.com' FROM generate_series(1, 100001) n;
INSERT INTO old.member SELECT n % 4 + 1, n FROM generate_series(1, 40) n;
-- Half of the projects are of one organization.
INSERT INTO old.project (organization_id, country) SELECT CASE WHEN n % 2 = 0 THEN 1 ELSE n % 4 + 1 END, 'de' FROM generate_series(1, 40) n;
INSERT INTO old.task (project) SELECT id FROM old.project;
INSERT INTO old.checklist (task) SELECT id FROM old.task;
INSERT INTO old.comment (project, task) SELECT project, id FROM old.task;
INSERT INTO old.note (project) SELECT nullif(id, 3) FROM old.project;
INSERT INTO old.plan (project) SELECT id FROM old.project;
INSERT INTO old.invoice (organization_id, number, project) SELECT organization_id, 'no. ' || id, id FROM old.project;
UPDATE old.invoice SET organization_id = 2 WHERE number = 'no. 8';
INSERT INTO old.event SELECT nullif(n % 5, 0), date '2026-01-01' + n % 59, 'event ' || n FROM generate_series(1, 100000) n;
ANALYZE;

-- Without a tenant, columns are proposed.
SELECT table_name, rows, tenant_by, path, finding, call FROM shard_survey('old', namespaces => '{old}');
-- With one, there is a row for each table.
SELECT table_name, rows, bytes > 0 AS has_size, tenant_by, path, call FROM shard_survey('old', 'organization_id', '{old}')
 WHERE tenant_by IS NOT NULL;
-- And one for each thing that is in the way.
SELECT table_name, regexp_replace(finding, '\d+ (kB|MB)', '..', 'g') AS finding, call FROM shard_survey('old', 'organization_id', '{old}', true)
 WHERE finding IS NOT NULL;
-- Of large tables some pages are read.
SELECT finding ~ '^about \d+ rows \(\+- \d+\) are without a tenant, for example ' AS estimated, call
  FROM shard_survey('old', 'organization_id', '{old}') WHERE table_name = 'event' AND finding LIKE '%without%';
-- A table that somebody changes is not waited for.
BEGIN;
LOCK TABLE old.note IN ACCESS EXCLUSIVE MODE;
SELECT table_name, tenant_by, finding FROM shard_survey('old', 'organization_id', '{old}') WHERE table_name = 'note';
COMMIT;

-- A table that was never analyzed has the rows that its size suggests.
CREATE SCHEMA fresh;
CREATE TABLE fresh.thing (id bigint PRIMARY KEY, tenant text NOT NULL) WITH (autovacuum_enabled = off);
INSERT INTO fresh.thing SELECT n, 'a' FROM generate_series(1, 100) n;
SELECT table_name, rows > 0 AS has_rows, tenant_by, finding, call FROM shard_survey('old', 'tenant', '{fresh}');

-- Mistakes are told at once.
SELECT * FROM shard_survey('nowhere', 'tenant');
SELECT * FROM shard_survey('old', 'organisation_id', '{old}');
SELECT * FROM shard_survey('old', 'customer', '{old}');
SELECT * FROM shard_survey('old', 'id', '{old}');
SELECT * FROM shard_survey('old', 'day', '{old}');
SELECT * FROM shard_survey('old', 'tenant', '{old,new}');
SELECT * FROM shard_survey('old', 'tenant', '{}');
SELECT * FROM shard_survey('old', 'tenant', '{NULL}');
SELECT * FROM shard_survey(NULL);
SELECT * FROM shard_survey('old', exact => NULL);
SELECT * FROM shard_survey('old', timeout => '0');
SELECT shard_add('gpu', kind => 'gpu') > 0 AS added;
SELECT * FROM shard_survey('gpu');

-- The mover of a shard on another server needs rights.
SELECT shard_add('far', 'dbname=shard_a user=mover', namespace => 'elsewhere') > 0 AS added;
\connect shard_a
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.letter (tenant bigint NOT NULL, id bigint, PRIMARY KEY (tenant, id));
CREATE TABLE elsewhere.secret (tenant bigint NOT NULL, id bigint, PRIMARY KEY (tenant, id));
INSERT INTO elsewhere.letter SELECT n % 2, n FROM generate_series(1, 10) n;
ANALYZE elsewhere.letter, elsewhere.secret;
\connect :home
\set SHOW_CONTEXT never
SELECT * FROM shard_survey('far', 'tenant', '{elsewhere}');
\connect shard_a
GRANT USAGE ON SCHEMA elsewhere TO mover;
GRANT SELECT ON elsewhere.letter TO mover;
\connect :home
\set SHOW_CONTEXT never
SELECT table_name, tenant_by, finding, call FROM shard_survey('far', 'tenant', '{elsewhere}');

DROP EXTENSION shardmaster;
SET client_min_messages = warning;
DROP SCHEMA old, fresh CASCADE;
\connect shard_a
SET client_min_messages = warning;
DROP SCHEMA elsewhere CASCADE;
