COMMENT ON FUNCTION shard_entries(text) IS
'lists the current routing. status "disabled": a split holds writes back, which will go to write_shard; version: since which this entry holds';
COMMENT ON FUNCTION shard_routing_version(text) IS
'returns the current routing version of a keyspace; 0 before the first change';
COMMENT ON FUNCTION shard_routing_history(text) IS
'lists every change of routing: a row for each key of each version. from_shard NULL: newly assigned; to_shard NULL: taken out; split_id: the split that moved the rows';
COMMENT ON FUNCTION shard_route_at(text, bigint, text) IS
'returns the shard that a routing version routes a key to. 42704: no such version, or the key was not assigned in it';
