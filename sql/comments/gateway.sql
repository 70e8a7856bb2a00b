COMMENT ON FUNCTION shard_set_service(text, text) IS
'says where the service of a shard answers requests for its keys: host:port, [address]:port or unix:/path; several replicas with commas; NULL: nowhere. 22023: that is none; 42704: no such shard';
COMMENT ON FUNCTION shard_services() IS
'lists the shards with the addresses of their services, by shard_index';
COMMENT ON FUNCTION shard_gateway_config(text, text, text, text) IS
'a configuration that sends requests to the service of their key''s shard, of the current routing version. gateway: "nginx", a server for its http block, with the Lua module; "nginx-upstreams" and "nginx-location", its two parts, for a server of one''s own; "lua", a chunk that returns a function from a key to its place; "pgbouncer", the section [databases] with every shard, where the other arguments do not matter. key_from: where a request has its key, header:NAME, query:NAME or path:NUMBER. listen: where the server listens. Warns of shards that have keys and no service. 22023: an argument that is none of these; 42704: no such keyspace';
