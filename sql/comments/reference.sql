COMMENT ON FUNCTION shard_reference_tables(text) IS
'the state of each reference table of a keyspace, or of all, on each shard. state: filling (not complete yet), following, away (does not answer) or failed (somebody must act). lag: the shard has all that was committed on the origin so long ago. error: why it does not follow, with a hint. Example: SELECT * FROM shard_reference_tables()';
COMMENT ON FUNCTION shard_reference_wait(text, interval) IS
'waits until all active shards have what is now committed on the origins of a keyspace''s reference tables. Example: SELECT shard_reference_wait(). 55000: a shard has failed; 57014: the timeout is over';
