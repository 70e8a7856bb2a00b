-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The columns of functions in Rust that return rows of a type; src/api/row.rs names them, too.

CREATE TYPE shardmaster.misplaced_runs_row AS (
    run_id bigint, action text, keyspace text, shard text, keys bigint, state text, table_name text, moved bigint,
    deleted bigint, sqlstate text, message text, started_by text, started_at timestamptz, changed_at timestamptz);
COMMENT ON TYPE shardmaster.misplaced_runs_row IS 'the columns of shard_misplaced_runs()';

CREATE TYPE shardmaster.adopt_row AS (
    said_by text, keyspace text, key text, routed_to text, moved_to text, split_id bigint, version bigint, action text);
COMMENT ON TYPE shardmaster.adopt_row IS 'the columns of shard_adopt()';

CREATE TYPE shardmaster.split_check_row AS (check_name text, ok boolean, detail text, hint text, object text);
COMMENT ON TYPE shardmaster.split_check_row IS 'the columns of shard_split_check()';

CREATE TYPE shardmaster.topology_row AS (
    shard_index integer, shard_key text, kind text, status text, host text, port integer, database text,
    namespace text, auth_kind text, credential_alias text, active boolean);
COMMENT ON TYPE shardmaster.topology_row IS 'the columns of shard_topology()';

CREATE TYPE shardmaster.executions_row AS (
    execution_id bigint, shard text, state text, rows bigint, sqlstate text, message text, statement text,
    started_by text, changed_at timestamptz, gid text);
COMMENT ON TYPE shardmaster.executions_row IS 'the columns of shard_executions()';

CREATE TYPE shardmaster.lookups_row AS (
    keyspace text, of text, table_name text, column_name text, shard_key text, state text, waiting bigint,
    lag_seconds double precision, waits_for text);
COMMENT ON TYPE shardmaster.lookups_row IS 'the columns of shard_lookups()';

CREATE TYPE shardmaster.routing_history_row AS (
    version bigint, changed_at timestamptz, key text, from_shard text, to_shard text, reason text, changed_by text,
    split_id bigint);
COMMENT ON TYPE shardmaster.routing_history_row IS 'the columns of shard_routing_history()';

CREATE TYPE shardmaster.top_row AS (
    key text, shard text, rows bigint, rows_error bigint, bytes bigint, writes bigint, share double precision,
    routed_to text, problem text);
COMMENT ON TYPE shardmaster.top_row IS 'the columns of shard_top()';

CREATE TYPE shardmaster.split_figures_row AS (
    split_id bigint, lag_rows bigint, lag_seconds double precision, queue_bytes bigint, is_behind boolean,
    problem text, queue_limit bigint);
COMMENT ON TYPE shardmaster.split_figures_row IS 'the columns of split_figures()';

CREATE TYPE shardmaster.capacity_row AS (
    shard_key text, status text, capacity bigint, minted bigint, free bigint, leased bigint, confirmed bigint,
    available bigint, kind text);
COMMENT ON TYPE shardmaster.capacity_row IS 'the columns of shard_capacity()';

CREATE TYPE shardmaster.entries_row AS (
    key text, bucket integer, lower text, upper text, read_shard text, write_shard text, status text, version bigint);
COMMENT ON TYPE shardmaster.entries_row IS 'the columns of shard_entries()';

CREATE TYPE shardmaster.reserve_slot_row AS (reservation_id bigint, shard_key text, slot_no bigint, status text, lease_expires_at timestamptz);
COMMENT ON TYPE shardmaster.reserve_slot_row IS 'the columns of shard_reserve_slot()';

CREATE TYPE shardmaster.logins_row AS (role text, shard text, username text, credential_alias text, set_by text, updated_at timestamptz);
COMMENT ON TYPE shardmaster.logins_row IS 'the columns of shard_logins()';

CREATE TYPE shardmaster.credentials_row AS (alias text, auth_kind text, shards text[], master_key text, set_by text, updated_at timestamptz);
COMMENT ON TYPE shardmaster.credentials_row IS 'the columns of shard_credentials()';

CREATE TYPE shardmaster.reference_tables_row AS (
    keyspace text, table_name text, origin text, shard text, state text, lag interval, error text, hint text);
COMMENT ON TYPE shardmaster.reference_tables_row IS 'the columns of shard_reference_tables()';

CREATE TYPE shardmaster.tenant_usage_row AS (kind text, leased bigint, confirmed bigint, quota bigint, slot_seconds numeric, tenant_id text);
COMMENT ON TYPE shardmaster.tenant_usage_row IS 'the columns of shard_tenant_usage()';

CREATE TYPE shardmaster.route_range_row AS (lower text, upper text, shard_key text, conninfo text, routing_version bigint, namespace text);
COMMENT ON TYPE shardmaster.route_range_row IS 'the columns of shard_route_range()';

CREATE TYPE shardmaster.survey_row AS (
    table_name text, rows bigint, bytes bigint, tenant_by text, path text[], finding text, call text);
COMMENT ON TYPE shardmaster.survey_row IS 'the columns of shard_survey()';

CREATE TYPE shardmaster.adoption_step AS (
    kind text, table_name text, column_name text, through text[], value_column text, also text[], policy text, key_type text, call text,
    undo text, why text);
COMMENT ON TYPE shardmaster.adoption_step IS 'a step of shard_adopt_database()';

SET LOCAL search_path = @extschema@, pg_temp;
