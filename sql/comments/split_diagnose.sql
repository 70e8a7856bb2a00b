COMMENT ON FUNCTION @extschema@.shard_split_diagnose(bigint) IS
    'all problems of a split, on the master and on both shards, and what would fix each (NULL: it passes). No row: all is well. Reads only. Example: SELECT * FROM shard_split_diagnose(7). 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_to_call(bigint) IS
    'the next call that brings a split to its end. NULL: the split is over, or a worker is doing it. Example: SELECT shard_split_to_call(7). 42704: no such split';
