-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Which numbers a shard alone gives out. A block stays here for good, whatever becomes of its shard: its numbers are in rows
-- that have moved to others.

CREATE TABLE shardmaster.number_block (
    keyspace  text NOT NULL,
    shard_key text NOT NULL,
    first     bigint NOT NULL,
    last      bigint NOT NULL CHECK (last >= first),
    given_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (keyspace, shard_key, first, last)
);
COMMENT ON TABLE shardmaster.number_block IS 'blocks of numbers that sequences of shards give out, each of one shard, never given to another one; see shard_sequences_spread()';
COMMENT ON COLUMN shardmaster.number_block.keyspace IS 'the keyspace whose sequences were spread';
COMMENT ON COLUMN shardmaster.number_block.shard_key IS 'the shard of the block; also a shard that was dropped since';
COMMENT ON COLUMN shardmaster.number_block.first IS 'its smallest number';
COMMENT ON COLUMN shardmaster.number_block.last IS 'its greatest number';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.number_block', '');

SET LOCAL search_path = @extschema@, pg_temp;
