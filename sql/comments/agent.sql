COMMENT ON FUNCTION @extschema@.shard_guard_drop(bigint) IS
    'after finish: the old shard stops refusing clients with an old route, and nothing of the split is left there';
COMMENT ON FUNCTION @extschema@.shard_adopt(text) IS
    'this master takes over a shard that belongs to another one, only when that one is gone for good; its next splits get numbers that the shard does not know';
COMMENT ON FUNCTION @extschema@.shard_cleanup(text) IS
    'removes from a shard what splits have left there that this master does not know as active; a redirect stays while this master routes one of its keys to the shard';
