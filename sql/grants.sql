-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The last step of the installation.
SELECT shardmaster.grant_initially();

-- Behind each is its function, which is called as whoever asks: to read the view is no right.
GRANT SELECT ON @extschema@.shard_splits, @extschema@.shard_guards TO PUBLIC;

SET LOCAL search_path = @extschema@, pg_temp;
