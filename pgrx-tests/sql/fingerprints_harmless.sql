UPDATE app.p SET val = val || 'x'
INSERT INTO app.t (tenant, id, u) SELECT 'b', i, i FROM generate_series(1001, 1500) i
DELETE FROM app.t WHERE tenant = 'b'
VACUUM ANALYZE
VACUUM FREEZE
VACUUM FULL pg_class
VACUUM FULL pg_attribute
SELECT nextval('app.t_s_seq')
ALTER SEQUENCE app.t_s_seq RESTART 1000
CREATE TABLE elsewhere.more (a int); DROP TABLE elsewhere.more
CREATE FUNCTION elsewhere.named(int) RETURNS int LANGUAGE sql AS 'SELECT 1'
GRANT look_owner TO look_other
CHECKPOINT
CREATE TRIGGER shardmaster_2_s_i BEFORE INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION shardmaster_agent.capture_1(); ALTER TABLE app.t ENABLE ALWAYS TRIGGER shardmaster_2_s_i; DROP TRIGGER shardmaster_2_s_i ON app.t
REVOKE ALL ON SCHEMA shardmaster_agent FROM PUBLIC
