COMMENT ON FUNCTION @extschema@.shard_split_check(bigint) IS
    'dry run: asks both servers what would keep a split from succeeding; all findings at once, nothing is written';
