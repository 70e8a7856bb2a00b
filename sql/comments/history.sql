COMMENT ON FUNCTION shard_entries(text) IS
'lists the current routes. status "disabled": a split holds back writes, which will go to write_shard. version: the routing version since which the route holds. Example: SELECT * FROM shard_entries()';
COMMENT ON FUNCTION shard_routing_version(text) IS
'returns the current routing version of a keyspace; 0 before the first change. Example: SELECT shard_routing_version()';
COMMENT ON FUNCTION shard_routing_history(text) IS
'lists every change of routing: a row for each key of each version. from_shard: NULL, if the key was newly assigned. to_shard: NULL, if its route was removed. split_id: the split that moved the rows. Example: SELECT * FROM shard_routing_history()';
COMMENT ON FUNCTION shard_route_at(text, bigint, text) IS
'returns the shard that a routing version routes a key to. Example: SELECT shard_route_at(''42'', 12). 42704: no such version, or the key was not assigned in it';
