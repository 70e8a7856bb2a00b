-- What a split creates, changes and drops on a shard, one of each kind and each a line: tried where event triggers fire for it.
CREATE SCHEMA IF NOT EXISTS shardmaster_agent
CREATE TABLE shardmaster_agent.trial (a int PRIMARY KEY)
CREATE INDEX trial_index ON shardmaster_agent.trial (a)
COMMENT ON TABLE shardmaster_agent.trial IS 'trial'
CREATE SEQUENCE shardmaster_agent.trial_numbers
ALTER SEQUENCE shardmaster_agent.trial_numbers RESTART 2
CREATE FUNCTION shardmaster_agent.trial() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'
CREATE TRIGGER trial AFTER INSERT ON shardmaster_agent.trial FOR EACH ROW EXECUTE FUNCTION shardmaster_agent.trial()
ALTER TABLE shardmaster_agent.trial ENABLE ALWAYS TRIGGER trial
GRANT SELECT ON shardmaster_agent.trial TO PUBLIC
REVOKE SELECT ON shardmaster_agent.trial FROM PUBLIC
CREATE TEMPORARY TABLE trial_rows (a int)
CREATE TEMPORARY TABLE trial_copy AS SELECT a FROM shardmaster_agent.trial WITH NO DATA
CREATE TEMPORARY VIEW trial_view AS SELECT 1 AS a
DROP VIEW pg_temp.trial_view
DROP TABLE pg_temp.trial_rows, pg_temp.trial_copy
DROP TRIGGER trial ON shardmaster_agent.trial
DROP FUNCTION shardmaster_agent.trial()
DROP INDEX shardmaster_agent.trial_index
DROP SEQUENCE shardmaster_agent.trial_numbers
DROP TABLE shardmaster_agent.trial
