COMMENT ON FUNCTION @extschema@.shard_split_diagnose(bigint) IS
    'everything that is not as it should be with a split, on the master and on both shards, and what would repair it (NULL: it passes by itself); no row: all is well. Reads only. 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_to_call(bigint) IS
    'what an operator types now to get a split to its end; NULL: it is over, or a worker is doing it. 42704: no such split';
