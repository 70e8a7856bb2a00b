-- What the functions about workers say of themselves, and who may call them.
REVOKE ALL ON FUNCTION shard_status() FROM PUBLIC;
COMMENT ON FUNCTION shard_status() IS
'Whether everything is in place for splits to run by themselves, one row each: version of extension and library, preload, database, launcher, coordinator (pid and last sign of life), split workers, free background worker slots; then one row for each decided cutover that a shard knows and this master does not, for each shard that could not be asked, for each unfinished split, and for each statement of shard_execute() in two phases that is left on shards. Where ok is false, value says what to do.';
