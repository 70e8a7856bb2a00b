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
