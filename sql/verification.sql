-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION @extschema@.shard_split_verify(bigint) IS
    'compares every row of a split on both sides, in the background and while clients write, before its cutover and after it, until it is finished. shard_split_verification() shows how far that is and what it has found. Example: SELECT shard_split_verify(7). 42704: no such split; 55000: not in this phase';

CREATE TYPE shardmaster.split_verification_row AS (
    table_name text, status text, rows_compared bigint, bytes bigint, differing bigint, example_key text, what text,
    verified_at timestamptz);
COMMENT ON TYPE shardmaster.split_verification_row IS 'the columns of shard_split_verification()';

CREATE FUNCTION @extschema@.shard_split_verification(split_id bigint) RETURNS SETOF shardmaster.split_verification_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1);
    SELECT t.table_name, CASE WHEN v.is_late THEN 'failed' ELSE v.status END, v.rows_compared, v.bytes, v.differing,
           v.example_key, CASE WHEN v.is_late THEN 'the split was finished first' ELSE v.what END, v.verified_at
      FROM shardmaster.split_table t
      JOIN shardmaster.split_plan p ON p.id = t.split_id
      JOIN LATERAL (SELECT w.*, p.finished_at IS NOT NULL AND w.status IN ('pending', 'running') AS is_late
                      FROM shardmaster.split_verification w
                     WHERE w.split_id = t.split_id AND w.ordinal = t.ordinal) v ON true
     WHERE t.split_id = $1 ORDER BY t.ordinal
$$;
COMMENT ON FUNCTION @extschema@.shard_split_verification(bigint) IS
    'the result of shard_split_verify(): a row for each table. status: pending, running, passed, differs or failed (what says why). bytes: of the rows as text. verified_at: when the last row of the table was compared. Example: SELECT * FROM shard_split_verification(7). 42704: no such split';

COMMENT ON FUNCTION @extschema@.shard_split_repair(bigint) IS
    'copies the rows again that shard_split_verify() has found to differ, and verifies their tables again. Only before the cutover. Returns how many rows they are. Example: SELECT shard_split_repair(7). 42704: no such split; 55000: not in this phase';

SET LOCAL search_path = @extschema@, pg_temp;
