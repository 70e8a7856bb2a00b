-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The wrapper and its one server. Whoever may make foreign tables may make one of it: who reads it needs the level and the
-- login for asking all shards.
CREATE FOREIGN DATA WRAPPER shardmaster HANDLER shardmaster.fdw_handler VALIDATOR shardmaster.fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER shardmaster IS 'reads tables of all shards, as shard_query() does';
CREATE SERVER shardmaster FOREIGN DATA WRAPPER shardmaster;
COMMENT ON SERVER shardmaster IS 'all active shards of this master, whichever they are by then';
GRANT USAGE ON FOREIGN SERVER shardmaster TO PUBLIC;

COMMENT ON FUNCTION shardmaster.fdw_handler() IS 'what the server calls of the foreign data wrapper';
COMMENT ON FUNCTION shardmaster.fdw_validator(text[], oid) IS
'checks the options of a foreign table: keyspace, table_name, timeout. HV00D: another one; HV00J: one is missing; 22023: no such time';
COMMENT ON FUNCTION @extschema@.shard_import(text, text, text, interval) IS
'makes a foreign table for each table of a keyspace, in a schema of the master, by the columns of one shard (the first active one); called again, makes those that are there alike. Whoever reads one asks the active shards of that moment as its own login, as by shard_query(): each key is answered for by one shard, also while splits move it, and rows that policies of a shard hide from the login are not among them. 42501: no login; 42704: a shard lacks a table; 42710: something else has the name; 55000: no tables, no shard, or a split is under way and the table is hidden; 25001: not in REPEATABLE READ';

SET LOCAL search_path = @extschema@, pg_temp;
