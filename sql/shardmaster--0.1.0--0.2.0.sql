-- From 0.1.0 to 0.2.0: what CREATE EXTENSION of 0.2.0 makes otherwise, a part for each change. The last part is
-- for the rights of whatever is new, and stays the last.

-- Rows of a named type, where it was RETURNS TABLE.

CREATE TYPE shardmaster.split_verification_row AS (
    table_name text, status text, rows_compared bigint, bytes bigint, differing bigint, example_key text, what text,
    verified_at timestamptz);
COMMENT ON TYPE shardmaster.split_verification_row IS 'the columns of shard_split_verification()';

CREATE TYPE shardmaster.misplaced_runs_row AS (
    run_id bigint, action text, keyspace text, shard text, keys bigint, state text, table_name text, moved bigint,
    deleted bigint, sqlstate text, message text, started_by text, started_at timestamptz, changed_at timestamptz);
COMMENT ON TYPE shardmaster.misplaced_runs_row IS 'the columns of shard_misplaced_runs()';

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
COMMENT ON TYPE shardmaster.split_figures_row IS 'the columns of shard_split_figures()';

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

-- In place: dropped and made again, they would lose what roles have been granted, and views of users that
-- call them would stand in the way. The columns are those that they had.
DO $$
DECLARE
    called record;
BEGIN
    FOR called IN
        SELECT p.oid, t.oid AS result, p.pronargs
          FROM pg_catalog.pg_extension e
          JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid
                                     AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.deptype = 'e'
          JOIN pg_catalog.pg_proc p ON p.oid = d.objid
          JOIN pg_catalog.pg_type t ON t.typnamespace = 'shardmaster'::pg_catalog.regnamespace
                                   AND 'shard_' || t.typname = p.proname || '_row'
         WHERE e.extname = 'shardmaster' AND p.proargmodes @> '{t}'
    LOOP
        UPDATE pg_catalog.pg_proc p
           SET prorettype = called.result, proallargtypes = NULL, proargmodes = NULL,
               proargnames = CASE WHEN called.pronargs > 0 THEN p.proargnames[1:called.pronargs] END
         WHERE p.oid = called.oid;
        INSERT INTO pg_catalog.pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
        VALUES ('pg_catalog.pg_proc'::pg_catalog.regclass, called.oid, 0,
                'pg_catalog.pg_type'::pg_catalog.regclass, called.result, 0, 'n');
    END LOOP;
END $$;

-- Why some functions are in no level.

COMMENT ON FUNCTION @extschema@.shard_grant(name, text) IS
    'lets a role call what a level holds: client (routes, slots, identifiers), monitor (looks), operator (both, splits, assignments), admin (all of these, topology, keyspaces). For the owner of the extension, in no level itself: who could call it would have them all. 22023: no such level; 42704: no such role';
COMMENT ON FUNCTION @extschema@.shard_revoke(name, text) IS
    'takes away what shard_grant() of the level has given, that of the levels it holds included. For the owner of the extension. Errors as of shard_grant';
COMMENT ON FUNCTION @extschema@.shard_login_set(text, text, text, text) IS
'says as whom a role, and whoever has its rights and no login of his own, is connected to a shard, or to all for which nothing else is said, by shard_query(): username there, with a credential of the keychain or by what the account of the server has. For superusers: a shard may let roles in without a proof. 42501: none; 42704: no such role, shard or credential; 22023: the mover''s own role';
COMMENT ON FUNCTION @extschema@.shard_logins() IS
'lists as whom roles are connected to the shards; shard is NULL for all of which nothing else is said. A role that was dropped is named by its number. For the owner of the extension: no level shows whom shards know';

-- Capture by a native function where a shard has the extension.

-- Makes the trigger function of one table of a split on this shard a native one, for its owner alone, who has made it in
-- PL/pgSQL before. Functions in C are made by superusers only; this is one of the library's own, which reads and writes
-- what belongs to its owner, whoever that is.
CREATE FUNCTION shardmaster.native_capture(split bigint, ordinal int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made name := format('capture_%s_%s', split, ordinal);
BEGIN
    -- The session's own role: it may own nothing else than it could before.
    IF NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                     JOIN pg_roles r ON r.oid = p.proowner AND r.rolname = session_user
                    WHERE n.nspname = 'shardmaster_agent' AND p.proname = made AND p.pronargs = 0) THEN
        RAISE EXCEPTION 'function shardmaster_agent.%() does not exist, or belongs to somebody else', made
            USING ERRCODE = '42501', HINT = 'It is called by the worker of a split, which has made that function.';
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION shardmaster_agent.%I() RETURNS trigger LANGUAGE c VOLATILE AS %L, %L',
                   made, 'MODULE_PATHNAME', 'shardmaster_capture_1');
END $$;
COMMENT ON FUNCTION shardmaster.native_capture(bigint, int) IS 'makes a capture function of a split on this shard, which the caller owns, a native one';

-- The last: what is new gets the rights that CREATE EXTENSION gives it. What was there before keeps those that it has.
DO $$
DECLARE
    routine pg_catalog.regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid
          FROM pg_catalog.pg_depend d
          JOIN pg_catalog.pg_proc p ON p.oid = d.objid
         WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
           AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
           AND d.refobjid = (SELECT oid FROM pg_catalog.pg_extension WHERE extname = 'shardmaster')
           AND d.deptype = 'e' AND p.proacl IS NULL AND p.proname <> 'shard_for'
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
        IF routine IN (SELECT shardmaster.routines_of_level('monitor')) THEN
            EXECUTE pg_catalog.format('GRANT EXECUTE ON ROUTINE %s TO pg_monitor', routine);
        END IF;
    END LOOP;
END $$;
