COMMENT ON FUNCTION shard_of(text, text, text) IS
'returns the shard_key of the shard that holds a key. intent: "read" never waits; "write" waits while a split holds the key''s writes back, up to shardmaster.route_wait_timeout, then raises SM002; in REPEATABLE READ and SERIALIZABLE 40001 at once. 42704: the key is not assigned; 55000: its shard is disabled. Works on a standby';
COMMENT ON FUNCTION shard_route(text, text, text) IS
'as shard_of, with what a client needs to get there. conninfo: a connection string without user and file paths; NULL: the shard is this very database, stay on the connection you have. routing_version: the keyspace''s current version, to compare with that of an SM001. namespace: the schema of the shard''s tables';

-- Their query is planned once in a session, maybe while the tables are tiny: a plan that
-- reads all of a table would stay when they grow.
ALTER FUNCTION shard_of(text, text, text) SET enable_seqscan = off;
ALTER FUNCTION shard_route(text, text, text) SET enable_seqscan = off;
