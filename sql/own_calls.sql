-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- What procedures and functions of the extension call of those that users call: the same code under a name in the schema of the
-- catalog. The schema of the calls belongs to somebody else, perhaps, who may give its name to another one: what is found by that
-- name runs as whoever calls.

CREATE FUNCTION shardmaster.split_start_dual_write(split_id bigint, on_ddl text) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_start_dual_write_wrapper';
COMMENT ON FUNCTION shardmaster.split_start_dual_write(bigint, text) IS 'internal: shard_split_start_dual_write()';

CREATE FUNCTION shardmaster.split_run_backfill(split_id bigint) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_run_backfill_wrapper';
COMMENT ON FUNCTION shardmaster.split_run_backfill(bigint) IS 'internal: shard_split_run_backfill()';

CREATE FUNCTION shardmaster.split_replay_tail(split_id bigint) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_replay_tail_wrapper';
COMMENT ON FUNCTION shardmaster.split_replay_tail(bigint) IS 'internal: shard_split_replay_tail()';

CREATE FUNCTION shardmaster.split_cutover(split_id bigint, max_fence interval, not_before timestamptz, until timestamptz, attempts int) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_cutover_wrapper';
COMMENT ON FUNCTION shardmaster.split_cutover(bigint, interval, timestamptz, timestamptz, int) IS 'internal: shard_split_cutover()';

CREATE FUNCTION shardmaster.split_finish(split_id bigint, accept_missing boolean, source_lost boolean) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_finish_wrapper';
COMMENT ON FUNCTION shardmaster.split_finish(bigint, boolean, boolean) IS 'internal: shard_split_finish()';

CREATE FUNCTION shardmaster.split_rollback(split_id bigint, target_lost boolean) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_rollback_wrapper';
COMMENT ON FUNCTION shardmaster.split_rollback(bigint, boolean) IS 'internal: shard_split_rollback()';

CREATE FUNCTION shardmaster.split_resume(split_id bigint) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_resume_wrapper';
COMMENT ON FUNCTION shardmaster.split_resume(bigint) IS 'internal: shard_split_resume()';

CREATE FUNCTION shardmaster.split_verify(split_id bigint) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_verify_wrapper';
COMMENT ON FUNCTION shardmaster.split_verify(bigint) IS 'internal: shard_split_verify()';

CREATE FUNCTION shardmaster.split_to_call(split_id bigint) RETURNS text
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_to_call_wrapper';
COMMENT ON FUNCTION shardmaster.split_to_call(bigint) IS 'internal: shard_split_to_call()';

CREATE FUNCTION shardmaster.assign_many(keys text[], shard_key text, keyspace text, force boolean, reason text) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_assign_many_wrapper';
COMMENT ON FUNCTION shardmaster.assign_many(text[], text, text, boolean, text) IS 'internal: shard_assign_many()';

CREATE FUNCTION shardmaster.unassigned(keyspace text, shards text[], timeout interval) RETURNS TABLE (shard text, table_name text, key text, rows bigint)
VOLATILE PARALLEL UNSAFE
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_unassigned_wrapper';
COMMENT ON FUNCTION shardmaster.unassigned(text, text[], interval) IS 'internal: shard_unassigned()';

CREATE FUNCTION shardmaster.misplaced_runs(run_id bigint) RETURNS SETOF shardmaster.misplaced_runs_row
STABLE SECURITY DEFINER PARALLEL SAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_misplaced_runs_wrapper';
COMMENT ON FUNCTION shardmaster.misplaced_runs(bigint) IS 'internal: shard_misplaced_runs()';

CREATE FUNCTION shardmaster.table_add(table_name text, shard_by text, keyspace text, key_type regtype, policy text, origin text) RETURNS void
VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_table_add_wrapper';
COMMENT ON FUNCTION shardmaster.table_add(text, text, text, regtype, text, text) IS 'internal: shard_table_add()';

CREATE FUNCTION shardmaster.table_derive(table_name text, column_name text, through text[], value_column text, keyspace text, timeout interval) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_table_derive_wrapper';
COMMENT ON FUNCTION shardmaster.table_derive(text, text, text[], text, text, interval) IS 'internal: shard_table_derive()';

CREATE FUNCTION shardmaster.table_identify(table_name text, keyspace text, timeout interval) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_table_identify_wrapper';
COMMENT ON FUNCTION shardmaster.table_identify(text, text, interval) IS 'internal: shard_table_identify()';

CREATE FUNCTION shardmaster.job_retry(job_id bigint) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_job_retry_wrapper';
COMMENT ON FUNCTION shardmaster.job_retry(bigint) IS 'internal: shard_job_retry()';

CREATE FUNCTION shardmaster.sequences_spread(keyspace text, block bigint, below bigint, dry_run boolean, timeout interval) RETURNS TABLE (shard text, sequence text, first bigint, last bigint, outcome text)
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_sequences_spread_wrapper';
COMMENT ON FUNCTION shardmaster.sequences_spread(text, bigint, bigint, boolean, interval) IS 'internal: shard_sequences_spread()';

CREATE FUNCTION shardmaster.schema_copy("from" text, "to" text, keyspace text, also text[], secondary boolean, rights boolean, dry_run boolean, timeout interval) RETURNS TABLE (kind text, object text, statement text)
VOLATILE PARALLEL UNSAFE
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_schema_copy_wrapper';
COMMENT ON FUNCTION shardmaster.schema_copy(text, text, text, text[], boolean, boolean, boolean, interval) IS 'internal: shard_schema_copy()';

CREATE FUNCTION shardmaster.reference_wait(keyspace text, timeout interval) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_reference_wait_wrapper';
COMMENT ON FUNCTION shardmaster.reference_wait(text, interval) IS 'internal: shard_reference_wait()';

CREATE FUNCTION shardmaster.split_plan(source text, target text, tenants text[], description text, keyspace text) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_plan_wrapper';
COMMENT ON FUNCTION shardmaster.split_plan(text, text, text[], text, text) IS 'internal: shard_split_plan()';

CREATE FUNCTION shardmaster.split_check(split_id bigint, with_ok boolean) RETURNS SETOF shardmaster.split_check_row
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_check_wrapper';
COMMENT ON FUNCTION shardmaster.split_check(bigint, boolean) IS 'internal: shard_split_check()';

SET LOCAL search_path = @extschema@, pg_temp;
