COMMENT ON FUNCTION shard_of(text, text, text) IS
'returns the shard_key of the shard that holds a key. intent: "read" never waits; "write" waits while a split holds the key''s writes back, up to shardmaster.route_wait_timeout, then raises SM002; in REPEATABLE READ and SERIALIZABLE 40001 at once. 42704: the key is not assigned; 55000: its shard is disabled. Works on a standby';
COMMENT ON FUNCTION shard_route(text, text, text) IS
'as shard_of, with what a client needs to get there. conninfo: a connection string without user and file paths; NULL: the shard is this very database, stay on the connection you have. routing_version: the keyspace''s current version, to compare with that of an SM001. namespace: the schema of the shard''s tables';

-- Their query is planned once in a session, maybe while the tables are tiny: a plan that
-- reads all of a table would stay when they grow.
ALTER FUNCTION shard_of(text, text, text) SET enable_seqscan = off;
ALTER FUNCTION shard_route(text, text, text) SET enable_seqscan = off;
COMMENT ON FUNCTION shard_route_range(text, text, text, text) IS
'the shards of the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace, one row for each part, in their order; conninfo for clients. With intent write it waits for a part that a split is moving, up to shardmaster.route_wait_timeout (SM002). 42704: a part is not assigned; 22023: not a range keyspace; 55000: a shard is disabled';
COMMENT ON FUNCTION shard_range_midpoint(text, text, text, text) IS
'a key that cuts the range from lower (NULL: from the first) to before upper (NULL: to the last) in two: by keyspace, in the middle of the keys there could be, or by rows, in the middle of those that its shard holds now (asked of the shard; of large tables a sample). 55000: there is none; 22023: the range is on two shards, or not a range keyspace';
