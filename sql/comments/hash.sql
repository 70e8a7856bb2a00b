COMMENT ON FUNCTION shard_for(bigint, int) IS
'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the 8 bytes of the key, the lowest first, modulo shard_count. It never changes. Example: SELECT shard_for(42, 16). 22023: shard_count is not positive; 22004: an argument is NULL';
COMMENT ON FUNCTION shard_for(text, int) IS
'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the key in UTF-8, modulo shard_count. It never changes. Example: SELECT shard_for(''acme'', 16). 22023: shard_count is not positive; 22004: an argument is NULL';
COMMENT ON FUNCTION shard_for(uuid, int) IS
'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the key''s 16 bytes, modulo shard_count. It never changes. Example: SELECT shard_for(gen_random_uuid(), 16). 22023: shard_count is not positive; 22004: an argument is NULL';
