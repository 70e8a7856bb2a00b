-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The wrapper and its one server. Whoever may make foreign tables may make one of it: who reads it needs the level and the
-- login for asking all shards.
CREATE FOREIGN DATA WRAPPER shardmaster HANDLER shardmaster.fdw_handler VALIDATOR shardmaster.fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER shardmaster IS 'reads tables of all shards, as shard_query() does';
CREATE SERVER shardmaster FOREIGN DATA WRAPPER shardmaster;
COMMENT ON SERVER shardmaster IS 'all shards of this master that are active when it is queried';
GRANT USAGE ON FOREIGN SERVER shardmaster TO PUBLIC;

COMMENT ON FUNCTION shardmaster.fdw_handler() IS 'internal: the callbacks of the foreign data wrapper';
COMMENT ON FUNCTION shardmaster.fdw_validator(text[], oid) IS
'checks the options of a foreign table: keyspace, table_name, timeout. HV00D: another one; HV00J: one is missing; 22023: no such time';
COMMENT ON FUNCTION @extschema@.shard_import(text, text, text, interval) IS
'creates a foreign table for each table of a keyspace in a schema of the master, with the columns of one shard (by default the first active one). Called again, it corrects those that exist. A query of one asks the active shards of that moment with the reader''s own login, as shard_query() does: each key is answered by one shard, also while splits move it. Rows that policies of a shard hide from the login are missing. Example: SELECT * FROM shard_import(). 42501: no login; 42704: a shard lacks a table; 42710: another object has the name; 55000: no tables, no shard, or a split is active and the table is hidden; 25001: not in REPEATABLE READ';

SET LOCAL search_path = @extschema@, pg_temp;
