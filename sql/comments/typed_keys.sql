COMMENT ON FUNCTION shard_of(bigint, text, text) IS
'as shard_of(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_of(uuid, text, text) IS
'as shard_of(text, ..), for a key that is a uuid';
COMMENT ON FUNCTION shard_route(bigint, text, text) IS
'as shard_route(text, ..), for a key that is a number';
COMMENT ON FUNCTION shard_route(uuid, text, text) IS
'as shard_route(text, ..), for a key that is a uuid';
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
'as shard_assign_many, for an array of text as array_agg() makes it; a literal in quotes, which has no type by itself, is for shard_assign_many';
COMMENT ON FUNCTION shard_assign_keys(bigint[], text, text, boolean, text) IS
'as shard_assign_many, for an array of bigint as array_agg() makes it; a literal in quotes, which has no type by itself, is for shard_assign_many';
COMMENT ON FUNCTION shard_assign_keys(uuid[], text, text, boolean, text) IS
'as shard_assign_many, for an array of uuid as array_agg() makes it; a literal in quotes, which has no type by itself, is for shard_assign_many';
