COMMENT ON FUNCTION shard_of(bigint, text, text) IS
'as shard_of(text, ..), for a key that is a number. Example: SELECT shard_of(42)';
COMMENT ON FUNCTION shard_of(uuid, text, text) IS
'as shard_of(text, ..), for a key that is a uuid. Example: SELECT shard_of(''7b0e2f9a-3d0c-4f7e-8f5d-2c1b0a9e8d7c''::uuid)';
COMMENT ON FUNCTION shard_route(bigint, text, text) IS
'as shard_route(text, ..), for a key that is a number. Example: SELECT * FROM shard_route(42)';
COMMENT ON FUNCTION shard_route(uuid, text, text) IS
'as shard_route(text, ..), for a key that is a uuid. Example: SELECT * FROM shard_route(''7b0e2f9a-3d0c-4f7e-8f5d-2c1b0a9e8d7c''::uuid)';
COMMENT ON FUNCTION shard_route_at(bigint, bigint, text) IS
'as shard_route_at(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_route_at(uuid, bigint, text) IS
'as shard_route_at(text, ..), for a key that is a uuid';
COMMENT ON FUNCTION shard_assign(bigint, text, text, boolean, text) IS
'as shard_assign(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_assign(uuid, text, text, boolean, text) IS
'as shard_assign(text, ..), for a key that is a uuid';
COMMENT ON FUNCTION shard_unassign(bigint, text) IS
'as shard_unassign(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_unassign(uuid, text) IS
'as shard_unassign(text, ..), for a key that is a uuid';
COMMENT ON FUNCTION shard_place_tenant(bigint, text, text) IS
'as shard_place_tenant(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_place_tenant(uuid, text, text) IS
'as shard_place_tenant(text, ..), for a key that is a uuid';
COMMENT ON FUNCTION shard_assign_keys(text[], text, text, boolean, text) IS
'as shard_assign_many, for an array of text, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(name), ''a'') FROM tenants';
COMMENT ON FUNCTION shard_assign_keys(bigint[], text, text, boolean, text) IS
'as shard_assign_many, for an array of bigint, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(id), ''a'') FROM tenants';
COMMENT ON FUNCTION shard_assign_keys(uuid[], text, text, boolean, text) IS
'as shard_assign_many, for an array of uuid, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(id), ''a'') FROM tenants';
