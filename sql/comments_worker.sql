-- What the functions about workers say of themselves, and who may call them.
REVOKE ALL ON FUNCTION shard_status() FROM PUBLIC;
COMMENT ON FUNCTION shard_status() IS
'whether everything is in place for splits to run, one row each: version of extension and library, preload, database, launcher, coordinator (pid and last sign of life), split workers, free background worker slots. Then a row for each decided cutover that a shard records and this master does not know, for each shard that could not be asked, for each unfinished split, and for each statement of shard_execute() in two phases that is left on shards. If ok is false, value says what to do. Example: SELECT * FROM shard_status()';
