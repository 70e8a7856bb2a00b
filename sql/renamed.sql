-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- New names of calls. Those of version 0.1 stay until version 0.4.
CREATE FUNCTION @extschema@.shard_split_redirect_drop(split_id bigint, source_lost boolean DEFAULT false) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_guard_drop_wrapper';
COMMENT ON FUNCTION @extschema@.shard_split_redirect_drop(bigint, boolean) IS
    'ends the redirect of a finished split: the old shard no longer refuses clients whose route is from before the split, and nothing of the split is left there. With the last redirect its triggers go. source_lost: the old shard is gone for good and is not asked. Example: SELECT shard_split_redirect_drop(7). 55000: the split is not finished; 25001: in a transaction block, whose ROLLBACK would not undo it';

CREATE FUNCTION @extschema@.shard_split_auto_finish(split_id bigint, after interval DEFAULT NULL, queue_bytes bigint DEFAULT NULL) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_settle_for_wrapper';
COMMENT ON FUNCTION @extschema@.shard_split_auto_finish(bigint, interval, bigint) IS
    'finishes a split automatically, so long after its cutover, or as soon as the queue of its reverse split has so many bytes, whichever comes first. With neither it is not finished automatically any more. shard_split_reverse() cancels it. Example: SELECT shard_split_auto_finish(7, ''1 day''). 22023: a negative argument; 55000: the split is being reversed or rolled back';

SET LOCAL search_path = @extschema@, pg_temp;
