COMMENT ON FUNCTION shard_snowflake_id() IS
'a positive identifier that no other machine makes and that grows with time: 41 bits of milliseconds since shardmaster.snowflake_epoch, 10 bits of machine id, 12 bits of sequence. Waits for the next millisecond after 4,096 identifiers of one, and for a clock that was set back by up to 2 s. Example: SELECT shard_snowflake_id(). 55000: the library is not preloaded, no machine id is set, the clock was set back by more, or the epoch has changed';
COMMENT ON FUNCTION shard_snowflake_parts(bigint) IS
'when an identifier was made, to the millisecond, on which machine, and its number in that millisecond. Example: SELECT * FROM shard_snowflake_parts(shard_snowflake_id()). 22023: it is negative; 22004: it is NULL';
