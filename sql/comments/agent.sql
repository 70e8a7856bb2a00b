COMMENT ON FUNCTION @extschema@.shard_guard_drop(bigint, boolean) IS
    'after finish: the old shard stops refusing clients with a route from before the split, and nothing of it is left there; with the last one the triggers go. source_lost: the old shard is gone for good, and is not asked. 55000: not finished yet; 25001: in a transaction block, whose ROLLBACK would not undo it';
COMMENT ON FUNCTION @extschema@.shard_adopt(text) IS
    'this master takes over a shard that belongs to another one, only when that one is gone for good; its next splits get numbers that the shard does not know. 25001: in a transaction block, whose ROLLBACK would not undo it';
COMMENT ON FUNCTION @extschema@.shard_cleanup(text) IS
    'removes from a shard what splits have left there that this master does not know as active; a redirect stays while this master routes one of its keys to the shard. 25001: in a transaction block, whose ROLLBACK would not undo it';
