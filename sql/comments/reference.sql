COMMENT ON FUNCTION shard_reference_tables(text) IS
'where each shard is with each reference table of a keyspace, or of all: state filling (not there as a whole yet), following, away (does not answer) or failed (somebody has to look at it); lag: the shard has all that was committed on the origin so long ago; error and hint of what does not go on';
COMMENT ON FUNCTION shard_reference_wait(text, interval) IS
'waits until all active shards have what is committed on the origins of a keyspace''s reference tables by now. 55000: a shard has failed; 57014: not in time';
