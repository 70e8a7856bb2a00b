-- From 0.1.0 to 0.2.0: what CREATE EXTENSION of 0.2.0 makes otherwise, a part for each change. The last part is
-- for the rights of whatever is new, and stays the last.

-- Whoever may create objects in the schema of the extension could have operators and functions there that fit better than
-- the server's own.
SET LOCAL search_path TO pg_catalog, pg_temp;
-- What there is before: the last part is for all else.
SELECT set_config('shardmaster_update.there', coalesce(
    (SELECT array_agg(d.objid) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
      WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'shardmaster'
        AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)), '{}')::text, true);

-- Rows of a named type, where it was RETURNS TABLE.

CREATE TYPE shardmaster.split_verification_row AS (
    table_name text, status text, rows_compared bigint, bytes bigint, differing bigint, example_key text, what text,
    verified_at timestamptz);
COMMENT ON TYPE shardmaster.split_verification_row IS 'the columns of shard_split_verification()';

CREATE TYPE shardmaster.misplaced_runs_row AS (
    run_id bigint, action text, keyspace text, shard text, keys bigint, state text, table_name text, moved bigint,
    deleted bigint, sqlstate text, message text, started_by text, started_at timestamptz, changed_at timestamptz);
COMMENT ON TYPE shardmaster.misplaced_runs_row IS 'the columns of shard_misplaced_runs()';

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
    called pg_catalog.record;
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

-- What the extension calls itself is in its own schema: an overload of somebody's in the schema of the calls could be called
-- in its place. They keep whom they were granted to; those who call procedures need the schema as well.

ALTER FUNCTION @extschema@.shard_split_next_call(bigint, text, boolean) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_split_next_call(bigint, text, boolean) RENAME TO split_next_call;
ALTER FUNCTION @extschema@.shard_split_progress(bigint, bigint) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_split_progress(bigint, bigint) RENAME TO split_wait_for_change;
ALTER FUNCTION @extschema@.shard_split_line(bigint) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_split_line(bigint) RENAME TO split_line;
ALTER FUNCTION @extschema@.shard_split_account(bigint, timestamptz) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_split_account(bigint, timestamptz) RENAME TO split_account;
ALTER FUNCTION @extschema@.shard_split_figures(bigint) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_split_figures(bigint) RENAME TO split_figures;
ALTER FUNCTION @extschema@.shard_execution_begin(text, text, text[], int, boolean, interval, boolean) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_execution_begin(text, text, text[], int, boolean, interval, boolean) RENAME TO execution_begin;
ALTER FUNCTION @extschema@.shard_execution_take(bigint, boolean, interval) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_execution_take(bigint, boolean, interval) RENAME TO execution_take;
ALTER FUNCTION @extschema@.shard_execution_step(bigint, interval) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_execution_step(bigint, interval) RENAME TO execution_step;
ALTER FUNCTION @extschema@.shard_misplaced_begin(text, text, text[], text, text[], boolean, interval) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_misplaced_begin(text, text, text[], text, text[], boolean, interval) RENAME TO misplaced_begin;
ALTER FUNCTION @extschema@.shard_misplaced_step(bigint) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_misplaced_step(bigint) RENAME TO misplaced_step;
ALTER FUNCTION @extschema@.shard_guard_begin(text, text, boolean, boolean) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_guard_begin(text, text, boolean, boolean) RENAME TO guard_begin;
ALTER FUNCTION @extschema@.shard_guard_step(text, text, boolean) SET SCHEMA shardmaster;
ALTER FUNCTION shardmaster.shard_guard_step(text, text, boolean) RENAME TO guard_step;
-- Which splits take a worker is said in one place, by the library.
DROP FUNCTION shardmaster.split_takes_worker(bigint, text, text, text, text, boolean);
CREATE FUNCTION shardmaster.split_takes_worker(split_id bigint) RETURNS boolean
STABLE STRICT SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_takes_worker_wrapper';
COMMENT ON FUNCTION shardmaster.split_takes_worker(bigint) IS
    'whether a split has work for which it takes one of shardmaster.max_split_workers';
CREATE OR REPLACE FUNCTION shardmaster.split_rests(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(shardmaster.split_settles(p.id), 'waiting for shard_split_finish')
      FROM shardmaster.split_plan p
     WHERE p.id = $1 AND p.phase = 'completed' AND p.finished_at IS NULL AND p.activity IN ('idle', 'working')
       AND NOT shardmaster.split_takes_worker(p.id)
       -- It is being taken back.
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan b
                        WHERE b.reverse_of = p.id AND b.goal NOT IN ('planning', 'rolled_back'))
$$;

COMMENT ON TYPE shardmaster.split_figures_row IS 'the columns of split_figures()';
REVOKE ALL ON FUNCTION shardmaster.split_line(bigint), shardmaster.split_account(bigint, timestamptz), shardmaster.split_figures(bigint)
    FROM pg_monitor;
DO $$
DECLARE
    role name;
BEGIN
    FOR role IN
        SELECT DISTINCT r.rolname
          FROM pg_catalog.pg_proc p
         CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) a
          JOIN pg_catalog.pg_roles r ON r.oid = a.grantee AND r.oid <> p.proowner
         WHERE p.oid IN ('shardmaster.split_next_call(bigint, text, boolean)'::pg_catalog.regprocedure,
                         'shardmaster.execution_take(bigint, boolean, interval)'::pg_catalog.regprocedure,
                         'shardmaster.misplaced_step(bigint)'::pg_catalog.regprocedure,
                         'shardmaster.guard_step(text, text, boolean)'::pg_catalog.regprocedure)
    LOOP
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA shardmaster TO %I', role);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION shardmaster.routines_of_level(level text) RETURNS SETOF regprocedure
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.oid::regprocedure
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                      AND d.classid = 'pg_proc'::regclass
      JOIN pg_proc p ON p.oid = d.objid
      JOIN shardmaster.routine_levels() r ON r.routine = p.proname
     WHERE e.extname = 'shardmaster'
       AND r.level = ANY (CASE routines_of_level.level
                              WHEN 'client' THEN '{client}'::text[]
                              WHEN 'monitor' THEN '{monitor}'
                              WHEN 'operator' THEN '{client,monitor,operator}'
                              WHEN 'admin' THEN '{client,monitor,operator,admin}' END)
     ORDER BY p.proname, p.oid
$$;
CREATE OR REPLACE FUNCTION shardmaster.change_level(role name, level text, statement text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    call    text := CASE WHEN statement LIKE 'GRANT%' THEN 'shard_grant()' ELSE 'shard_revoke()' END;
    routine regprocedure;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'cannot execute % on a standby', call
            USING ERRCODE = '25006', HINT = 'Run it on the primary.';
    END IF;
    IF role IS NULL OR level IS NULL THEN
        RAISE EXCEPTION 'argument "%" must not be NULL', CASE WHEN role IS NULL THEN 'role' ELSE 'level' END
            USING ERRCODE = '22004';
    END IF;
    IF level NOT IN ('client', 'monitor', 'operator', 'admin') THEN
        RAISE EXCEPTION 'invalid value for "level": unrecognized level "%"', level
            USING ERRCODE = '22023', HINT = 'Levels are client, monitor, operator and admin.';
    END IF;
    FOR routine IN SELECT shardmaster.routines_of_level(level) LOOP
        EXECUTE format(statement, routine, role);
    END LOOP;
    -- Procedures call what is there as whoever calls them.
    IF level IN ('operator', 'admin') THEN
        EXECUTE format(CASE WHEN statement LIKE 'GRANT%' THEN 'GRANT USAGE ON SCHEMA shardmaster TO %I'
                            ELSE 'REVOKE USAGE ON SCHEMA shardmaster FROM %I' END, role);
    END IF;
END $$;
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

CREATE PROCEDURE shardmaster.execute_resume(execution_id bigint, retry boolean, timeout interval)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.execution_take(execution_id, retry, timeout);
    COMMIT;
    WHILE shardmaster.execution_step(execution_id, timeout) LOOP
        COMMIT;
    END LOOP;
END $$;
COMMENT ON PROCEDURE shardmaster.execute_resume(bigint, boolean, interval) IS
'internal: carries out what shard_execute() has written down';

CREATE OR REPLACE PROCEDURE @extschema@.shard_execute_resume(
    execution_id bigint, retry boolean DEFAULT false, timeout interval DEFAULT '10 min')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    CALL shardmaster.execute_resume(execution_id, retry, timeout);
END $$;

CREATE FUNCTION shardmaster.assign_found(keyspace text, shards text[], timeout interval, reason text)
RETURNS TABLE (found_on text[], keys bigint, assigned boolean, example text, problem text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    lot   pg_catalog.record;
    lows  int[];
    highs int[];
    low   int;
    high  int;
BEGIN
    FOR lot IN
        SELECT k.found_on, pg_catalog.array_agg(k.key) AS keys
          FROM (SELECT f.key, f.found_on,
                       (pg_catalog.row_number() OVER (PARTITION BY f.found_on, f.key IS NULL) - 1) OPERATOR(pg_catalog./) 10000 AS number
                  FROM (SELECT u.key, pg_catalog.array_agg(DISTINCT u.shard) AS found_on
                          FROM shardmaster.unassigned($1, $2, $3) u GROUP BY u.key) f) k
         GROUP BY k.found_on, k.key IS NULL, k.number ORDER BY k.found_on, k.key IS NULL, k.number
    LOOP
        found_on := lot.found_on;
        IF pg_catalog.cardinality(lot.found_on) OPERATOR(pg_catalog.>) 1 OR lot.keys[1] IS NULL THEN
            keys := pg_catalog.cardinality(lot.keys);
            assigned := false;
            example := pg_catalog.left(lot.keys[1], 100);
            problem := CASE WHEN lot.keys[1] IS NULL THEN 'rows without a key' ELSE 'rows are on more than one shard' END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- All at once; where that is refused in halves, down to the keys that it is refused for.
        lows := ARRAY[1];
        highs := ARRAY[pg_catalog.cardinality(lot.keys)];
        WHILE pg_catalog.cardinality(lows) OPERATOR(pg_catalog.>) 0 LOOP
            low := lows[1];
            high := highs[1];
            lows := lows[2:];
            highs := highs[2:];
            BEGIN
                PERFORM shardmaster.assign_many(lot.keys[low:high], lot.found_on[1], $1, false, $4);
                keys := high OPERATOR(pg_catalog.-) low OPERATOR(pg_catalog.+) 1;
                assigned := true;
                example := pg_catalog.left(lot.keys[low], 100);
                problem := NULL;
                RETURN NEXT;
            EXCEPTION WHEN data_exception OR object_not_in_prerequisite_state OR object_in_use THEN
                IF low OPERATOR(pg_catalog.<) high THEN
                    lows := ARRAY[low, (low OPERATOR(pg_catalog.+) high) OPERATOR(pg_catalog./) 2 OPERATOR(pg_catalog.+) 1] OPERATOR(pg_catalog.||) lows;
                    highs := ARRAY[(low OPERATOR(pg_catalog.+) high) OPERATOR(pg_catalog./) 2, high] OPERATOR(pg_catalog.||) highs;
                    CONTINUE;
                END IF;
                keys := 1;
                assigned := false;
                example := pg_catalog.left(lot.keys[low], 100);
                problem := pg_catalog.left(SQLERRM, 400);
                RETURN NEXT;
            END;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION shardmaster.assign_found(text, text[], interval, text) IS 'internal: shard_assign_found()';

CREATE OR REPLACE FUNCTION @extschema@.shard_assign_found(keyspace text DEFAULT 'default', shards text[] DEFAULT NULL,
                                               timeout interval DEFAULT '10 min', reason text DEFAULT 'its rows were found there')
RETURNS TABLE (found_on text[], keys bigint, assigned boolean, example text, problem text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.found_on, f.keys, f.assigned, f.example, f.problem FROM shardmaster.assign_found($1, $2, $3, $4) f
$$;

CREATE OR REPLACE PROCEDURE @extschema@.shard_misplaced_move(
    shard text, keys text[], keyspace text DEFAULT 'default', tables text[] DEFAULT NULL,
    fire_triggers boolean DEFAULT false, timeout interval DEFAULT '10 min', INOUT run_id bigint DEFAULT NULL)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    done pg_catalog.record;
BEGIN
    run_id := shardmaster.misplaced_begin('move'::pg_catalog.text, shard, keys, keyspace, tables, fire_triggers, timeout);
    COMMIT;
    WHILE shardmaster.misplaced_step(run_id) LOOP
        COMMIT;
    END LOOP;
    FOR done IN SELECT r.table_name, r.moved, r.deleted FROM shardmaster.misplaced_runs(run_id) r
                 WHERE r.table_name IS NOT NULL LOOP
        RAISE NOTICE 'table "%": % rows moved, % deleted that were already there', done.table_name, done.moved, done.deleted;
    END LOOP;
END $$;

CREATE OR REPLACE PROCEDURE @extschema@.shard_guard_install(shard_key text, keyspace text DEFAULT 'default')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.guard_begin(shard_key, keyspace, false, false);
    COMMIT;
    WHILE shardmaster.guard_step(shard_key, keyspace, false) LOOP
        COMMIT;
    END LOOP;
END $$;

CREATE OR REPLACE PROCEDURE @extschema@.shard_guard_remove(shard_key text, keyspace text DEFAULT 'default', force boolean DEFAULT false)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.guard_begin(shard_key, keyspace, true, force);
    COMMIT;
    IF force THEN
        RETURN;
    END IF;
    WHILE shardmaster.guard_step(shard_key, keyspace, true) LOOP
        COMMIT;
    END LOOP;
END $$;

-- No code of others on the tables of the extension.

CREATE FUNCTION shardmaster.no_code_of_others() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'no_code_of_others_wrapper';

CREATE TABLE shardmaster.credential_hold (
    alias      text NOT NULL REFERENCES shardmaster.keychain (alias),
    held_for   text NOT NULL CHECK (held_for <> ''),
    held_by    text NOT NULL,
    holder     oid NOT NULL,
    of_system  bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (alias, held_for, held_by, holder)
);
COMMENT ON TABLE shardmaster.credential_hold IS 'objects of others that use a credential, which is not dropped meanwhile; see shard_credential_hold()';
COMMENT ON COLUMN shardmaster.credential_hold.held_by IS 'the name of the role that holds it, and may release it';
COMMENT ON COLUMN shardmaster.credential_hold.holder IS 'its number: another role of its name is a different role';
COMMENT ON COLUMN shardmaster.credential_hold.of_system IS 'the database system of that number: in another one, where a dump was restored, the name counts';
SELECT pg_catalog.pg_extension_config_dump('shardmaster.credential_hold', '');

COMMENT ON FUNCTION shardmaster.no_code_of_others() IS 'keeps the rows of a table as they are for all but the extension''s owner, and while code of others is attached to it; the trigger of each table of the extension';

-- What others have put on the extension's tables.
CREATE FUNCTION shardmaster.code_of_others() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH own AS (
        SELECT c.oid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_class'::regclass
          JOIN pg_class c ON c.oid = d.objid
         WHERE e.extname = 'shardmaster' AND c.relkind = 'r'
    )
    SELECT format('foreign key %I of table %s', k.conname, k.conrelid::regclass)
      FROM pg_constraint k JOIN own ON own.oid = k.confrelid
     WHERE k.contype = 'f' AND k.conrelid NOT IN (SELECT oid FROM own)
    UNION ALL
    SELECT format('trigger %I of table %s', t.tgname, t.tgrelid::regclass)
      FROM pg_trigger t JOIN own ON own.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE NOT t.tgisinternal AND p.pronamespace <> 'shardmaster'::regnamespace
    UNION ALL
    SELECT format('rule %I of table %s', r.rulename, r.ev_class::regclass)
      FROM pg_rewrite r JOIN own ON own.oid = r.ev_class
    UNION ALL
    SELECT format('policy %I of table %s', p.polname, p.polrelid::regclass)
      FROM pg_policy p JOIN own ON own.oid = p.polrelid
    UNION ALL
    SELECT format('table %s, which inherits from %s', i.inhrelid::regclass, i.inhparent::regclass)
      FROM pg_inherits i
     WHERE i.inhrelid IN (SELECT oid FROM own) OR i.inhparent IN (SELECT oid FROM own)
    UNION ALL
    -- What the text of a table or view was taken to mean when it was made.
    SELECT format('%s of %s', pg_describe_object(d.refclassid, d.refobjid, 0), pg_describe_object(d.classid, d.objid, 0))
      FROM pg_depend d
      LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
      LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
      LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
       AND EXISTS (SELECT FROM pg_depend o JOIN pg_extension e ON e.oid = o.refobjid AND e.extname = 'shardmaster'
                    WHERE o.classid = 'pg_class'::regclass AND o.objid IN (k.conrelid, w.ev_class, a.adrelid)
                      AND o.refclassid = 'pg_extension'::regclass AND o.deptype = 'e')
       AND NOT EXISTS (SELECT FROM pg_depend o JOIN pg_extension e ON e.oid = o.refobjid AND e.extname = 'shardmaster'
                        WHERE o.classid = d.refclassid AND o.objid = d.refobjid
                          AND o.refclassid = 'pg_extension'::regclass AND o.deptype = 'e')
$$;
COMMENT ON FUNCTION shardmaster.code_of_others() IS 'code of others on the tables of the extension: foreign keys, triggers, rules, policies, tables that inherit; the rows of such a table cannot be changed';

-- Gives each table of the extension the trigger that looks for such code before a row is changed, and takes away what roles
-- have been given: by default privileges all of it, on what was not there before; else what would let them put such code there.
CREATE FUNCTION shardmaster.keep_tables_own(there oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation pg_catalog.record;
    given    pg_catalog.record;
    found    text;
BEGIN
    SELECT string_agg(c, ', ') INTO found FROM shardmaster.code_of_others() c;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'tables of extension "shardmaster" have code attached that is not the extension''s: %', found
            USING ERRCODE = '55000',
                  HINT = 'Drop each of them first. Use shard_credential_hold() instead of a foreign key to shardmaster.keychain.';
    END IF;
    FOR relation IN
        SELECT c.oid::regclass AS name, c.relkind, c.relacl, c.relowner, c.oid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_class'::regclass
          JOIN pg_class c ON c.oid = d.objid
         WHERE e.extname = 'shardmaster' AND c.relkind IN ('r', 'v', 'S')
    LOOP
        -- No name of another trigger comes before this one, and so none that would fire first.
        IF relation.relkind = 'r'
           AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation.oid AND t.tgname = chr(1)) THEN
            EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
                                FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.no_code_of_others()', chr(1), relation.name);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', relation.name, chr(1));
        END IF;
        FOR given IN
            SELECT a.privilege_type AS what, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role, '' AS columns
              FROM aclexplode(relation.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
             WHERE a.grantee <> relation.relowner
            UNION ALL
            SELECT a.privilege_type, coalesce(quote_ident(r.rolname), 'PUBLIC'), format(' (%I)', t.attname)
              FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
             WHERE t.attrelid = relation.oid AND NOT t.attisdropped
        LOOP
            IF relation.oid <> ALL (there) OR given.what IN ('REFERENCES', 'TRIGGER') THEN
                EXECUTE format('REVOKE %s%s ON %s %s FROM %s CASCADE', given.what, given.columns,
                               CASE relation.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relation.name, given.role);
            END IF;
        END LOOP;
    END LOOP;
    -- A column or a function of somebody's that is of one of these types would keep updates from changing it. To read rows
    -- nobody needs a right to their type.
    FOR relation IN
        SELECT DISTINCT t.oid::regtype AS name, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
          JOIN pg_type t ON t.typtype = 'c' AND (d.classid = 'pg_type'::regclass AND d.objid = t.oid
                                                 OR d.classid = 'pg_class'::regclass AND d.objid = t.typrelid)
         CROSS JOIN LATERAL aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE e.extname = 'shardmaster' AND a.grantee <> t.typowner
    LOOP
        EXECUTE format('REVOKE ALL ON TYPE %s FROM %s CASCADE', relation.name, relation.role);
    END LOOP;
END $$;
COMMENT ON FUNCTION shardmaster.keep_tables_own(oid[]) IS 'makes the tables of the extension be checked before their rows are changed, and revokes REFERENCES, TRIGGER and USAGE of the row types from all others; for new tables also what default privileges have granted. 55000: code of others is already there';

-- What every role may call, and what members of pg_monitor may. Who needs more is granted it by name; a client needs EXECUTE
-- on shard_of and shard_route alone.
CREATE FUNCTION shardmaster.grant_initially() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    routine regprocedure;
    role    text;
BEGIN
    FOR routine, role IN
        SELECT DISTINCT p.oid, coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_proc'::regclass
          JOIN pg_proc p ON p.oid = d.objid
         CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE e.extname = 'shardmaster' AND p.proname <> 'shard_for' AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', routine, role);
    END LOOP;
    -- Who may look at all of a server's statistics may look at these.
    FOR routine IN SELECT shardmaster.routines_of_level('monitor') LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO pg_monitor', routine);
    END LOOP;
    FOR role IN
        SELECT coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE n.nspname = 'shardmaster' AND a.grantee <> n.nspowner
    LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA shardmaster FROM %s', role);
    END LOOP;
    PERFORM shardmaster.keep_tables_own('{}');
END $$;
COMMENT ON FUNCTION shardmaster.grant_initially() IS 'the rights of a new installation, whatever default privileges there are';

CREATE FUNCTION @extschema@.shard_credential_hold(alias text, held_for text) RETURNS void
VOLATILE PARALLEL UNSAFE SET search_path TO pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_credential_hold_wrapper';
CREATE FUNCTION @extschema@.shard_credential_release(alias text, held_for text) RETURNS boolean
VOLATILE PARALLEL UNSAFE SET search_path TO pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_credential_release_wrapper';
COMMENT ON FUNCTION @extschema@.shard_credential_drop(text) IS
'deletes a credential. Example: SELECT shard_credential_drop(''north''). 42704: no such credential; 55006: a shard uses it, or a role holds it';
COMMENT ON FUNCTION @extschema@.shard_credential_hold(text, text) IS
'keeps a credential from being dropped, for an object of yours that uses it; held_for is a name of your choice. A repeated call changes nothing. The secret is not shown. Example: SELECT shard_credential_hold(''north'', ''nightly export''). 42704: no such credential';
COMMENT ON FUNCTION @extschema@.shard_credential_release(text, text) IS
'releases a credential that shard_credential_hold() holds. The role that holds it or a superuser may call it. Returns false if nobody holds it. Example: SELECT shard_credential_release(''north'', ''nightly export'')';

-- Why some functions are in no level.

COMMENT ON FUNCTION @extschema@.shard_grant(name, text) IS
    'lets a role call the functions of a level: client (routes, slots, identifiers), monitor (states), operator (both, splits, assignments), admin (all of these, topology, keyspaces). Only the extension''s owner may call it. Example: SELECT shard_grant(''app'', ''client''). 22023: no such level; 42704: no such role';
COMMENT ON FUNCTION @extschema@.shard_revoke(name, text) IS
    'revokes what shard_grant() of the level granted, including the levels below it. Only the extension''s owner may call it. Example: SELECT shard_revoke(''app'', ''client''). Errors as of shard_grant';
COMMENT ON FUNCTION @extschema@.shard_login_set(text, text, text, text) IS
'sets the login with which shard_query() and its like connect a role to a shard, or to all shards without a login of their own: username there, with a credential of the keychain or what the server''s operating-system user has. Roles that are members of this role use it too, if they have no login. Only superusers may call it, because a shard may trust a connection without proof. Example: SELECT shard_login_set(''analyst'', ''reader''). 42501: not a superuser; 42704: no such role, shard or credential; 22023: the mover''s own role';
COMMENT ON FUNCTION @extschema@.shard_logins() IS
'lists the logins of roles on the shards. shard: NULL, if it is for all shards without one of their own. A role that was dropped is shown by its number. Only the extension''s owner may call it. Example: SELECT * FROM shard_logins()';

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
        RAISE EXCEPTION 'function shardmaster_agent.%() does not exist, or belongs to another role', made
            USING ERRCODE = '42501', HINT = 'Only the worker of a split calls it, after it has created that function.';
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION shardmaster_agent.%I() RETURNS trigger LANGUAGE c VOLATILE AS %L, %L',
                   made, 'MODULE_PATHNAME', 'shardmaster_capture_1');
END $$;
COMMENT ON FUNCTION shardmaster.native_capture(bigint, int) IS 'replaces a capture function of a split on this shard, which the caller owns, by a native one';

-- Assignments and splits of many keys: nothing is asked for each of them, and what was has an index of its own.
ALTER TABLE shardmaster.split_key DROP CONSTRAINT split_key_split_id_fkey;
ALTER TABLE shardmaster.redirect DROP CONSTRAINT redirect_split_id_fkey;
ALTER TABLE shardmaster.routing_entry DROP CONSTRAINT routing_entry_keyspace_fkey;
DROP INDEX shardmaster.routing_entry_key;
CREATE INDEX routing_entry_past_key ON shardmaster.routing_entry (key, keyspace, valid_from)
    WHERE valid_to IS NOT NULL;

-- What a run says, and what stands for a split that goes back.

COMMENT ON FUNCTION @extschema@.shard_split_check(bigint, boolean) IS
    'dry run: asks both servers what would keep a split from succeeding, and writes nothing. The first row is a summary (ok is NULL): whether the split can begin, how much moves, how long the copy takes and writers wait. Then follow all problems and remarks, with a hint. object: names a remark for shard_split_accept(); until it is accepted, it stops the split. with_ok: shows everything that was checked. Amounts are the planner''s estimates, or counted for small tables. Example: SELECT * FROM shard_split_check(7). 42704: no such split';

CREATE OR REPLACE FUNCTION shardmaster.routine_levels() RETURNS TABLE (level text, routine name)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.level, unnest(l.routines::name[])
      FROM (VALUES
        -- Routes, slots, identifiers: what an application calls.
        ('client', '{shard_for, shard_of, shard_route, shard_route_at, shard_route_range, shard_entries,
                     shard_routing_version, shard_tables, shard_services, shard_gateway_config,
                     shard_reserve_slot, shard_confirm_slot, shard_cancel_slot, shard_renew_slot, shard_free_slot,
                     shard_snowflake_id, shard_snowflake_parts, shard_query, shard_query_json, shard_query_page,
                     shard_lookup, shard_lookup_claim}'),
        -- Looks, and changes nothing.
        ('monitor', '{shard_status, shard_report, shard_topology, shard_capacity, shard_tenant_usage, shard_guards, shard_trusted_owners, shard_credentials,
                      shard_split_metrics, shard_splits, shard_split_tables, shard_split_keys, shard_split_events, shard_split_points,
                      shard_split_lifecycle, shard_split_diagnose, shard_split_to_call, shard_schema_diff, shard_split_wait, shard_routing_history,
                      shard_sequences, shard_lookups, shard_lookup_conflicts, shard_reference_tables, shard_reference_wait, shard_jobs, shard_job_wait, job_wait, job_line}'),
        -- Splits and assignments.
        ('operator', '{shard_check, shard_survey, shard_survey_sql, shard_survey_report, shard_credential_hold, shard_credential_release, shard_execute, shard_execute_resume, shard_execute_abandon, shard_executions,
                       execution_begin, execution_take, execution_step, shard_schema_copy, shard_sequences_spread, shard_import, shard_split_plan, shard_split_plan_range, shard_split_plan_all, shard_split_map, shard_split_accept, shard_split_check,
                       shard_split_start_dual_write, shard_split_run_backfill, shard_split_replay_tail,
                       shard_split_cutover, shard_split_rehearse, shard_split_rollback, shard_split_reverse, shard_split_finish, shard_split_auto_finish, shard_split_settle_for, shard_split_switch_reads, shard_split_pause,
                       shard_split_resume, shard_split_run, shard_move, split_run, split_to, split_compare, split_compared, split_compare_all, split_next_call, split_wait_for_change, split_line, split_account, split_in_vain, split_start_dual_write, split_run_backfill,
                       split_replay_tail, split_cutover, split_finish, split_rollback, split_resume, execute_resume, assign_many, assign_found, unassigned, misplaced_runs,
                       shard_split_verify, shard_split_verification, shard_split_repair,
                       shard_split_redirect_drop, shard_guard_drop, shard_guard_install, shard_guard_remove, guard_begin, guard_step, shard_assign, shard_assign_many, shard_assign_keys, shard_assign_found, shard_assign_bucket, shard_assign_range,
                       shard_unassign, shard_join_ranges, shard_range_midpoint, shard_routing_rollback,
                       shard_place_tenant, shard_set_quota, shard_expire_leases, shard_top, shard_misplaced, shard_unassigned,
                       shard_misplaced_move, shard_misplaced_delete, shard_misplaced_abandon, shard_misplaced_runs, misplaced_begin, misplaced_step}'),
        -- Topology, keyspaces, and what a lost master has left.
        ('admin', '{shard_add, shard_add_many, shard_set_endpoint, shard_credential_set, shard_credential_drop, shard_keychain_rotate, shard_drop, shard_set_status, shard_set_capacity, shard_set_service,
                    shard_keyspace_add, shard_keyspace_drop, shard_table_add, shard_table_drop, shard_table_derive, shard_table_derive_drop, shard_table_identify, shard_job_pause, shard_job_retry, shard_sequence_add, shard_sequence_drop, shard_adopt_database,
                    adoption_steps, adoption_job, adoption_take, open_jobs, check_of_a_tenant, table_add, table_derive, table_identify, job_retry, sequences_spread,
                    schema_copy, reference_wait, split_plan, split_check,
                    shard_adopt, shard_cleanup, shard_trust_owner, shard_distrust_owner}')
      ) l (level, routines)
$$;

CREATE FUNCTION shardmaster.progress_bar(percent bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('[%s] ', rpad(repeat('#', least(coalesce($1, 0) / 5, 20)::int), 20, '.'))
     WHERE current_setting('application_name') = 'psql'
$$;
COMMENT ON FUNCTION shardmaster.progress_bar(bigint) IS 'the progress of a copy as a bar; NULL if the client is not psql';

ALTER TABLE shardmaster.split_progress ADD COLUMN fence_waited_for text;
COMMENT ON COLUMN shardmaster.split_progress.fence_waited_for IS 'what the cutover waited for last, before it could begin';
ALTER TYPE shardmaster.split_metrics_row ADD ATTRIBUTE waiting_on text;
CREATE FUNCTION shardmaster.split_starts_by_call(split_id bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT pg_is_in_recovery()
       AND (current_setting('shardmaster.database', true) IS DISTINCT FROM current_database()
            OR current_setting('shared_preload_libraries') NOT LIKE '%shardmaster%')
       AND NOT EXISTS (SELECT FROM pg_stat_activity a
                        WHERE a.backend_type = 'shardmaster split ' || $1 AND a.datname = current_database())
$$;
COMMENT ON FUNCTION shardmaster.split_starts_by_call(bigint) IS 'whether a split has no worker, and gets one only when somebody calls for it';

CREATE FUNCTION shardmaster.split_waits(split_id bigint, OUT waiting_on text, OUT waiting_for text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN w.text IS NULL THEN CASE WHEN r.text IS NOT NULL THEN CASE WHEN r.ends THEN 'time' ELSE 'call' END END
                ELSE w.kind END,
           coalesce(w.text, r.text)
      FROM shardmaster.split_plan p
      LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id
      -- One that waits for the plan's row is not written down there yet.
      LEFT JOIN LATERAL (
        SELECT w.pid, w.query, coalesce(nullif(w.application_name, ''), 'working') AS status FROM pg_stat_activity w
         WHERE w.backend_type = 'shardmaster split ' || p.id AND w.datname = current_database()
           AND (w.pid = p.worker_pid OR w.query <> '')
         ORDER BY w.pid = p.worker_pid DESC NULLS LAST, w.backend_start LIMIT 1) a ON true
     CROSS JOIN LATERAL (SELECT shardmaster.split_rests(p.id), EXISTS (SELECT FROM shardmaster.split_settle s WHERE s.split_id = p.id)) r (text, ends)
     CROSS JOIN LATERAL (
        SELECT CASE WHEN p.paused THEN 'call' ELSE 'other' END, coalesce(shardmaster.split_waits_for_worker(p.id), p.waiting_for) WHERE a.pid IS NULL
        UNION ALL
        SELECT 'other', p.waiting_for WHERE a.status IN ('working', 'following', 'connecting') AND p.activity = 'retrying'
        UNION ALL
        -- It follows its source meanwhile.
        SELECT 'call', 'waiting for shard_split_cutover'
         WHERE a.status = 'following' AND p.phase = 'cutover_pending' AND p.goal = 'backfill'
           AND p.activity <> 'retrying' AND g.tail_status = 'caught_up' AND NOT p.paused
        UNION ALL
        SELECT CASE a.status WHEN 'idle' THEN 'call' WHEN 'connecting' THEN 'connection' ELSE 'other' END, a.query
         WHERE a.status IN ('waiting', 'idle') OR a.status = 'connecting' AND p.activity <> 'retrying'
        UNION ALL
        SELECT NULL, NULL
         LIMIT 1) w (kind, text)
     WHERE p.id = $1
$$;
COMMENT ON FUNCTION shardmaster.split_waits(bigint) IS
    'what a split waits for just now, for people and as a word: call (of an operator), time, connection or other; NULL: it waits for nothing';

CREATE OR REPLACE FUNCTION shardmaster.split_waits_for(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.waiting_for FROM shardmaster.split_waits($1) w
$$;

-- asks: sources, how far targets are behind; of splits that have ended those since ended_since. What it costs is to grow with
-- those that are open, however many have ended.
CREATE FUNCTION shardmaster.split_metrics(split_id bigint, asks boolean, ended_since timestamptz)
RETURNS SETOF shardmaster.split_metrics_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1) WHERE $1 IS NOT NULL;
    WITH worked_on AS MATERIALIZED (
        SELECT a.backend_type FROM pg_stat_activity a
         WHERE a.backend_type LIKE 'shardmaster split %' AND a.datname = current_database()
    )
    SELECT p.id, p.source_shard, p.target_shard, p.phase, coalesce(g.total_rows_copied, 0),
           coalesce(g.backfill_status, 'pending'),
           -- Whether it has caught up is not what the worker last saw, who may be away.
           CASE WHEN p.phase <> 'cutover_pending' OR g.tail_status = 'failed' THEN coalesce(g.tail_status, 'pending')
                WHEN f.is_behind THEN 'running'
                WHEN NOT f.is_behind THEN 'caught_up' END, shardmaster.some_keys(p.tenants), p.started_at, p.updated_at,
           p.error_message, g.last_event_id, g.last_event_ts, p.routing_version_at_start,
           p.routing_version_cutover, g.dual_write_started_at, g.backfill_started_at,
           g.backfill_completed_at, p.cutover_at, p.finished_at,
           -- Nobody is at one that waits for its operator, whatever its last worker has left there.
           CASE WHEN p.activity = 'working' AND p.phase = 'completed'
                 AND NOT shardmaster.split_takes_worker(p.id)
                THEN 'idle'
                -- Its end is a work whose steps are not written down there.
                WHEN p.activity = 'idle' AND p.finished_at IS NULL
                 AND (p.goal = 'finished' AND p.phase = 'completed' OR p.goal = 'rolled_back' AND p.phase <> 'rolled_back')
                THEN 'working' ELSE p.activity END,
           -- That capture has stopped is told beside whatever is waited for.
           CASE WHEN n.has_ended THEN p.waiting_for
                WHEN f.lag_rows IS NULL THEN coalesce(w.waiting_for, f.problem)
                ELSE nullif(concat_ws('; ', w.waiting_for, f.problem), '') END,
           g.percent,
           CASE WHEN p.phase = 'backfill' AND p.goal <> 'rolled_back' AND g.percent > 0
                THEN (clock_timestamp() - g.backfill_started_at) * ((100 - g.percent) / g.percent)::float8 END,
           CASE WHEN n.followed THEN f.lag_rows ELSE g.lag_rows END,
           CASE WHEN n.followed THEN make_interval(secs => f.lag_seconds) ELSE g.lag END,
           CASE WHEN n.followed THEN f.queue_bytes ELSE g.queue_bytes END, g.fence_ms, p.attempts, p.keyspace,
           CASE p.scope_kind WHEN 'range' THEN array_to_string(shardmaster.some_keys(p.tenants[:3]), ' ') ||
                                   CASE WHEN cardinality(p.tenants) > 3 THEN ' ...' ELSE '' END
                             WHEN 'all' THEN format('all, %s', shardmaster.counted(cardinality(p.tenants), 'entry', 'entries'))
                             ELSE shardmaster.counted(cardinality(p.tenants), rtrim(p.scope_kind, 's'), p.scope_kind) END, p.description,
           CASE WHEN n.followed AND f.lag_rows IS NULL
                THEN coalesce(g.measured_at, g.dual_write_started_at, p.created_at) END,
           p.error_detail, g.rehearsed_ms,
           CASE WHEN p.finished_at IS NULL THEN shardmaster.split_to_call(p.id) END,
           p.reverse_of,
           CASE WHEN p.finished_at IS NOT NULL THEN NULL
                WHEN p.phase = 'completed' OR p.reads_on_target THEN p.target_shard ELSE p.source_shard END, f.queue_limit,
           CASE WHEN p.attempts > 0 THEN p.retrying_since END, p.fenced_since,
           CASE WHEN NOT n.has_ended THEN coalesce(w.waiting_on, CASE WHEN f.problem IS NOT NULL THEN 'other' END) END
      FROM shardmaster.split_plan p
      LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id
     CROSS JOIN LATERAL (SELECT p.phase IN ('dual_write', 'backfill', 'tailing', 'cutover_pending')
                            OR p.reverse_of IS NOT NULL AND p.phase = 'planning',
                            (p.finished_at IS NOT NULL OR p.phase = 'rolled_back')
                            AND NOT EXISTS (SELECT FROM worked_on w WHERE w.backend_type = 'shardmaster split ' || p.id)) n (followed, has_ended)
      LEFT JOIN (SELECT * FROM shardmaster.split_figures($1) WHERE $2) f ON f.split_id = p.id
      LEFT JOIN LATERAL shardmaster.split_waits(p.id) w ON NOT n.has_ended
     WHERE p.id = $1
        OR $1 IS NULL AND (p.finished_at IS NULL AND p.phase <> 'rolled_back' OR coalesce(p.finished_at, p.updated_at) >= $3)
     ORDER BY p.id
$$;
COMMENT ON FUNCTION shardmaster.split_metrics(bigint, boolean, timestamptz) IS 'internal: what shard_split_metrics() gives';

CREATE OR REPLACE FUNCTION shardmaster.split_account(split_id bigint, began timestamptz) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws('; ',
               format('split %s: %s after %s', m.split_id, CASE WHEN m.finished_at IS NOT NULL THEN 'finished' ELSE m.phase END,
                      date_trunc('milliseconds', clock_timestamp() - began)),
               shardmaster.counted(nullif(m.total_rows_copied, 0), 'row', 'rows') || ' copied'
                   || coalesce(' at ' || shardmaster.copy_rate(m.total_rows_copied, m.backfill_started_at, m.backfill_completed_at), ''),
               CASE WHEN m.cutover_at IS NOT NULL THEN
                    concat_ws(', ', format('writers waited at most %s ms', coalesce(m.fence_ms::text, '?')),
                              'the cutover waited for ' || g.fence_waited_for) END,
               'next: ' || m.next_call)
      FROM shardmaster.split_metrics(split_id, false, 'infinity'::timestamptz) m
      LEFT JOIN shardmaster.split_progress g ON g.split_id = m.split_id
$$;

CREATE OR REPLACE FUNCTION shardmaster.split_line(split_id bigint) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws(', ',
               format('split %s: %s%s', m.split_id, CASE WHEN g.goes_back THEN 'rolling back from ' END, m.phase),
               CASE WHEN g.copies THEN concat(shardmaster.progress_bar(floor(m.percent)::bigint), coalesce(m.percent, 0), ' %') END,
               CASE WHEN NOT g.goes_back AND m.phase IN ('backfill', 'tailing', 'cutover_pending', 'completed')
                    THEN shardmaster.counted(m.total_rows_copied, 'row', 'rows') || ' copied' END,
               CASE WHEN g.copies
                    THEN nullif(concat_ws(', ', shardmaster.copy_rate(m.total_rows_copied, m.backfill_started_at, NULL),
                                          'about ' || date_trunc('second', m.eta) || ' left'), '') END,
               CASE WHEN NOT g.goes_back AND m.phase = 'tailing'
                    THEN shardmaster.counted(m.lag_rows, 'changed row', 'changed rows') || ' behind' END,
               CASE WHEN m.phase = 'completed' AND m.fence_ms IS NOT NULL
                    THEN format('writers waited at most %s ms', m.fence_ms) END,
               CASE WHEN m.phase = 'completed' AND p.goal = 'finished' AND m.finished_at IS NULL THEN 'finishing' END,
               CASE WHEN m.activity IN ('retrying', 'failed', 'paused')
                    THEN concat_ws(' since ', m.activity,
                                   CASE WHEN m.activity = 'retrying' THEN date_trunc('second', m.retrying_since) END) END,
               -- What its operator does next is no news to whoever runs it.
               CASE WHEN m.activity = 'paused' OR m.activity = 'retrying' OR m.activity <> 'failed' AND m.waiting_on NOT IN ('call', 'connection')
                    THEN 'waiting for ' || shardmaster.clipped(shardmaster.waiting_words(m.waiting_for), 700) END)
      FROM shardmaster.split_plan p
     -- What its source would say stands in the line of one phase alone.
      JOIN shardmaster.split_metrics(split_id, p.phase = 'tailing', 'infinity'::timestamptz) m ON p.id = m.split_id
     CROSS JOIN LATERAL (SELECT p.goal = 'rolled_back' AND m.phase <> 'rolled_back') b (goes_back)
     CROSS JOIN LATERAL (SELECT b.goes_back, m.phase = 'backfill' AND NOT b.goes_back) g (goes_back, copies)
     -- An attempt that is under way says nothing new, until it has passed or failed, too.
     WHERE p.id = $1 AND NOT (m.attempts > 0 AND m.activity = 'working' AND coalesce(m.waiting_on, 'connection') = 'connection')
$$;
COMMENT ON FUNCTION shardmaster.split_line(bigint) IS 'internal: a split in one line, for shard_split_run; NULL: there is nothing new';

CREATE FUNCTION shardmaster.split_in_vain(split_id bigint, watched_since timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    plan shardmaster.split_plan%ROWTYPE;
BEGIN
    SELECT * INTO plan FROM shardmaster.split_plan p
     WHERE p.id = split_id AND p.phase = 'planning' AND p.goal <> 'planning' AND p.activity = 'retrying' AND p.attempts >= 3
       AND greatest(p.retrying_since, watched_since) < clock_timestamp() - interval '30 s';
    IF FOUND THEN
        RAISE EXCEPTION 'split % has not begun, since %', plan.id, shardmaster.clipped(shardmaster.waiting_words(plan.waiting_for), 700)
            USING ERRCODE = '57014',
                  HINT = format('It is tried again. The same call watches it again, CALL shard_split_run(%1$s, ''rolled_back'') ends it.', plan.id);
    END IF;
END $$;
COMMENT ON FUNCTION shardmaster.split_in_vain(bigint, timestamptz) IS 'internal: raises 57014 if a split could not begin for half a minute while it was watched';

CREATE OR REPLACE FUNCTION @extschema@.shard_split_metrics(split_id bigint DEFAULT NULL)
RETURNS SETOF shardmaster.split_metrics_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardmaster.split_metrics($1, true, now() - interval '1 day')
$$;
COMMENT ON FUNCTION @extschema@.shard_split_map(bigint, text, text, text) IS
    'sets how a column of a table is copied: an SQL expression over a row of the source, or NULL, which leaves the column out. The column''s own name removes the mapping. The table is named as in shard_tables(). Example: SELECT shard_split_map(7, ''orders'', ''note'', ''upper(note)''). 55000: the split has begun; 42704: no such split, or no such table in it';
COMMENT ON FUNCTION @extschema@.shard_split_metrics(bigint) IS
    'one row for each split that is open or has ended within a day, or for the one that is asked for: what it does, how far it is, why it waits. Example: SELECT * FROM shard_split_metrics(7). Sizes are in bytes. lag_rows: changed rows that are queued on the source, counted up to 1000001. unknown_since: since when lag_rows, lag and queue_bytes are unknown, because the source does not answer within a second. next_call: what to call next. tenants: the first 50 names of what moves; shard_split_keys() has all. reverse_of: the split that this one reverses; lag_rows is then what it would have to bring back. reads_on: the shard that reads go to; NULL: the split is finished. queue_limit: the size at which capture stops and the copy begins again. retrying_since: since when attempts fail; NULL: the last one did not. fence_ms: how long the cutover, or a failed attempt that took longer, kept writers waiting. rehearsed_ms: the same of the last rehearsal. fenced_since: since when the cutover keeps writers waiting, or a shard that has lost the state of the split has not got it back. waiting_on: what waiting_for is, as a word: call (of an operator), time, connection or other; NULL: the split waits for nothing';

CREATE OR REPLACE FUNCTION @extschema@.shard_splits(ended boolean DEFAULT false)
RETURNS SETOF shardmaster.splits_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.split_id, m.source_shard, m.target_shard,
           shardmaster.clipped(shardmaster.split_moves(p.scope_kind, p.tenants, p.reverse_of), 30),
           CASE WHEN m.finished_at IS NOT NULL THEN 'finished' ELSE m.phase END,
           concat_ws(', ',
               CASE WHEN m.activity IN ('retrying', 'failed', 'paused') THEN m.activity END,
               CASE WHEN p.goal = 'rolled_back' AND m.phase <> 'rolled_back' THEN 'rolling back'
                    WHEN p.goal = 'finished' AND m.phase = 'completed' AND m.finished_at IS NULL THEN 'finishing' END,
               CASE WHEN m.finished_at IS NOT NULL THEN date_trunc('second', m.finished_at)::text
                    WHEN p.goal = 'rolled_back' THEN NULL
                    WHEN m.phase = 'backfill' THEN format('%s %%', coalesce(m.percent, 0)) END,
               CASE WHEN m.phase = 'backfill' THEN date_trunc('second', m.eta) || ' left' END,
               'writers wait since ' || date_trunc('second', m.fenced_since),
               CASE WHEN p.goal <> 'rolled_back' AND m.phase IN ('tailing', 'cutover_pending') THEN
                    CASE WHEN m.tail_status = 'caught_up' THEN 'caught up'
                         ELSE coalesce(shardmaster.counted(m.lag_rows, 'row', 'rows'), 'unknown rows') || ' behind' END END,
               CASE WHEN m.phase = 'completed' AND m.finished_at IS NULL AND m.fenced_since IS NULL
                    THEN 'writers waited ' || round(m.fence_ms) || ' ms' END),
           -- What is wrong is what it waits for: somebody to mend it.
           shardmaster.clipped(coalesce(CASE WHEN m.activity = 'failed' THEN m.error_message END,
                                        CASE WHEN m.phase = 'cutover_pending' AND m.waiting_on = 'call' AND m.activity <> 'paused'
                                             THEN 'shard_split_cutover' || coalesce(' again: ' || m.error_message, '') END,
                                        shardmaster.waiting_words(m.waiting_for)), 120),
           m.next_call
      FROM shardmaster.split_metrics(NULL::bigint, true, CASE WHEN ended THEN '-infinity' ELSE 'infinity' END::timestamptz) m JOIN shardmaster.split_plan p ON p.id = m.split_id
     WHERE (coalesce(ended, false) OR m.finished_at IS NULL AND m.phase <> 'rolled_back')
       -- A reverse split that nobody has asked for is no work.
       AND NOT (p.reverse_of IS NOT NULL AND p.started_at IS NULL AND p.phase IN ('planning', 'rolled_back'))
     ORDER BY m.split_id
$$;

CREATE OR REPLACE VIEW @extschema@.shard_splits AS SELECT * FROM @extschema@.shard_splits(false);

CREATE PROCEDURE shardmaster.split_run(split_id bigint, until text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    began     pg_catalog.timestamptz := pg_catalog.clock_timestamp();
    next_call pg_catalog.text;
    line      pg_catalog.text;
    shown     pg_catalog.text := '';
    -- An error that an earlier call has shown does not end this one.
    resumes   boolean := true;
BEGIN
    LOOP
        next_call := shardmaster.split_next_call(split_id, until, resumes);
        resumes := false;
        EXIT WHEN next_call IS NULL;
        IF next_call OPERATOR(pg_catalog.=) '' THEN
            PERFORM shardmaster.split_wait_for_change(split_id, 1000::bigint);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_start_dual_write' THEN
            PERFORM shardmaster.split_start_dual_write(split_id, NULL::pg_catalog.text);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_run_backfill' THEN
            PERFORM shardmaster.split_run_backfill(split_id);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_replay_tail' THEN
            PERFORM shardmaster.split_replay_tail(split_id);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_cutover' THEN
            -- Whom an attempt has waited for may be gone a moment later.
            PERFORM shardmaster.split_cutover(split_id, NULL::interval, NULL::pg_catalog.timestamptz,
                                              NULL::pg_catalog.timestamptz, 3);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_finish' THEN
            PERFORM shardmaster.split_finish(split_id, false, false);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_rollback' THEN
            PERFORM shardmaster.split_rollback(split_id, false);
        ELSIF next_call OPERATOR(pg_catalog.=) 'shard_split_resume' THEN
            PERFORM shardmaster.split_resume(split_id);
        ELSE
            RAISE EXCEPTION 'shard_split_run() knows no call "%"', next_call
                USING ERRCODE = 'XX000', HINT = 'Call it yourself.';
        END IF;
        COMMIT;
        line := shardmaster.split_line(split_id);
        IF line OPERATOR(pg_catalog.<>) shown THEN
            RAISE INFO '%', line;
            shown := line;
        END IF;
        PERFORM shardmaster.split_in_vain(split_id, began);
    END LOOP;
END $$;
COMMENT ON PROCEDURE shardmaster.split_run(bigint, text) IS 'internal: shard_split_run() without its summary';

CREATE OR REPLACE PROCEDURE @extschema@.shard_split_run(split_id bigint, until text DEFAULT 'completed')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
    CALL shardmaster.split_run(split_id, until);
    RAISE INFO '%', shardmaster.split_account(split_id, began);
END $$;

COMMENT ON PROCEDURE @extschema@.shard_split_run(bigint, text) IS
    'runs a split from its phase to another one: completed (the default), finished, any phase in between, or rolled_back before its cutover has decided. Prints a line a second, in psql with a bar while rows are copied, and a summary at the end: rows, time, how long writers waited and for whom, what to call next. A cutover is tried three times. Example: CALL shard_split_run(7, ''cutover_pending''). Raises the split''s error. 57014: the split could not begin for half a minute; it goes on trying';

CREATE FUNCTION shardmaster.split_to(keys text[], target text, keyspace text) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_split_to_wrapper';
COMMENT ON FUNCTION shardmaster.split_to(text[], text, text) IS
    'internal: the split that brings keys to a shard, planned if there is none; NULL: all of them are already there';

-- Asks for a comparison of both sides, unless one is under way, or has shown since the cutover that every row is the same.
CREATE FUNCTION shardmaster.split_compare(split_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM shardmaster.split_verification v
                    WHERE v.split_id = $1 AND v.status IN ('pending', 'running'))
       -- To compare anew would forget which rows are to be copied again.
       AND NOT EXISTS (SELECT FROM shardmaster.split_difference d WHERE d.split_id = $1 AND d.to_repair)
       AND NOT coalesce((SELECT bool_and(v.status = 'passed' AND v.verified_at > p.cutover_at)
                           FROM shardmaster.split_verification v JOIN shardmaster.split_plan p ON p.id = v.split_id
                          WHERE v.split_id = $1), false) THEN
        PERFORM shardmaster.split_verify(split_id);
    END IF;
END $$;
COMMENT ON FUNCTION shardmaster.split_compare(bigint) IS 'internal: asks for a verification, unless one is under way or has passed since the cutover';

CREATE FUNCTION shardmaster.split_compared(split_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found        record;
    left_to_copy bigint;
BEGIN
    SELECT count(*) AS tables, count(*) FILTER (WHERE v.status NOT IN ('pending', 'running')) AS done,
           sum(v.rows_compared)::bigint AS compared,
           string_agg(format('%s (%s)', t.table_name, v.what), ', ' ORDER BY t.ordinal) FILTER (WHERE v.status = 'failed') AS failed,
           string_agg(t.table_name, ', ' ORDER BY t.ordinal) FILTER (WHERE v.status = 'differs') AS differing
      INTO found
      FROM shardmaster.split_verification v JOIN shardmaster.split_table t ON (t.split_id, t.ordinal) = (v.split_id, v.ordinal)
     WHERE v.split_id = $1;
    SELECT count(*) INTO left_to_copy FROM shardmaster.split_difference d WHERE d.split_id = $1 AND d.to_repair;
    IF left_to_copy > 0 OR found.done < found.tables THEN
        -- One that has failed, or was rolled back, ends the call; an attempt of its cutover that was aborted earlier does not.
        PERFORM shardmaster.split_next_call(p.id, 'finished', false)
           FROM shardmaster.split_plan p WHERE p.id = $1 AND (p.activity = 'failed' OR p.goal = 'rolled_back');
    END IF;
    IF left_to_copy > 0 THEN
        RETURN format('split %s: copying %s again', split_id, shardmaster.counted(left_to_copy, 'row', 'rows'));
    END IF;
    IF found.done < found.tables THEN
        -- A verification that does not go on says why.
        RETURN concat_ws(', ', format('split %s: verifying, %s of %s, %s compared', split_id, found.done,
                                      shardmaster.counted(found.tables, 'table', 'tables'), shardmaster.counted(found.compared, 'row', 'rows')),
                         (SELECT concat_ws(', waiting for ', p.activity, shardmaster.clipped(shardmaster.waiting_words(p.waiting_for), 700))
                            FROM shardmaster.split_plan p WHERE p.id = $1 AND p.activity IN ('retrying', 'paused')));
    END IF;
    IF found.failed IS NOT NULL THEN
        RAISE EXCEPTION 'split % could not be verified: %', split_id, shardmaster.clipped(found.failed, 700)
            USING ERRCODE = '55000', HINT = 'Remove the cause, then make the same call again.';
    END IF;
    IF found.differing IS NOT NULL THEN
        RAISE EXCEPTION 'rows of split % differ on its two sides: %', split_id, shardmaster.clipped(found.differing, 700)
            USING ERRCODE = '55000',
                  HINT = format(CASE WHEN EXISTS (SELECT FROM shardmaster.split_plan p WHERE p.id = $1 AND p.phase = 'completed')
                                THEN 'SELECT * FROM shard_split_verification(%1$s) shows them. SELECT shard_split_reverse(%1$s) takes the split back.'
                                ELSE 'SELECT * FROM shard_split_verification(%1$s) shows them. SELECT shard_split_repair(%1$s) copies them again; then make the same call again.' END,
                                split_id);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION shardmaster.split_compared(bigint) IS 'internal: the progress of a verification, for shard_move; NULL: it has ended, and every row is the same. Raises what it has found';

CREATE PROCEDURE shardmaster.split_compare_all(split_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    line  pg_catalog.text;
    shown pg_catalog.text := '';
BEGIN
    PERFORM shardmaster.split_compare(split_id);
    COMMIT;
    LOOP
        line := shardmaster.split_compared(split_id);
        EXIT WHEN line IS NULL;
        IF line OPERATOR(pg_catalog.<>) shown THEN
            RAISE INFO '%', line;
            shown := line;
        END IF;
        PERFORM shardmaster.split_wait_for_change(split_id, 1000::bigint);
        COMMIT;
    END LOOP;
    RAISE INFO 'split %: verified, every row is the same on both sides', split_id;
END $$;
COMMENT ON PROCEDURE shardmaster.split_compare_all(bigint) IS 'internal: verifies a split of shard_move, with a line a second';

-- As shard_split_run: a procedure, since each of its calls is committed before a worker sees it, and without a SET clause, which
-- would forbid COMMIT.
CREATE PROCEDURE @extschema@.shard_move(keys text[], target text, keyspace text DEFAULT 'default',
                                        verify boolean DEFAULT true, finish boolean DEFAULT false, wait boolean DEFAULT true)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    began     pg_catalog.timestamptz := pg_catalog.clock_timestamp();
    split_id  pg_catalog.int8 := shardmaster.split_to(keys, target, keyspace);
    next_call pg_catalog.text;
BEGIN
    COMMIT;
    IF split_id IS NULL THEN
        RAISE INFO 'all of these keys are already on shard "%"', target;
        RETURN;
    END IF;
    IF NOT coalesce(wait, true) THEN
        next_call := shardmaster.split_next_call(split_id, 'tailing', true);
        IF next_call OPERATOR(pg_catalog.=) 'shard_split_resume' THEN
            PERFORM shardmaster.split_resume(split_id);
        ELSIF next_call OPERATOR(pg_catalog.<>) '' THEN
            IF next_call OPERATOR(pg_catalog.=) 'shard_split_start_dual_write' THEN
                PERFORM shardmaster.split_start_dual_write(split_id, NULL::pg_catalog.text);
            END IF;
            PERFORM shardmaster.split_run_backfill(split_id);
        END IF;
        COMMIT;
        RAISE INFO 'split %: copies in the background; the same call without "wait => false" continues it', split_id;
        RETURN;
    END IF;
    IF shardmaster.split_next_call(split_id, 'completed', true) IS NOT NULL THEN
        CALL shardmaster.split_run(split_id, 'cutover_pending');
        IF coalesce(verify, true) AND shardmaster.split_next_call(split_id, 'completed', true) IS NOT NULL THEN
            CALL shardmaster.split_compare_all(split_id);
        END IF;
        CALL shardmaster.split_run(split_id, 'completed');
    END IF;
    IF coalesce(verify, true) AND shardmaster.split_next_call(split_id, 'finished', true) IS NOT NULL THEN
        CALL shardmaster.split_compare_all(split_id);
    END IF;
    IF coalesce(finish, false) THEN
        CALL shardmaster.split_run(split_id, 'finished');
    END IF;
    RAISE INFO '%', shardmaster.split_account(split_id, began);
END $$;
COMMENT ON PROCEDURE @extschema@.shard_move(text[], text, text, boolean, boolean, boolean) IS
    'moves keys (in a hash keyspace: buckets) to a shard, from whichever shard they are on: plans the split, checks both sides, copies, follows the changes, verifies every row, cuts over, and verifies again, with a line a second. It stops where a person has to decide; the error says what to call, and the same call then goes on. Clients wait during the cutover alone. finish: deletes the rows from the old shard at the end; without it they stay, and shard_split_reverse() takes the move back. verify => false compares nothing. wait => false begins the copy and returns. Example: CALL shard_move(''{42}'', ''b''). 22023: the keys are on several shards; 42704: no such shard, or a key that is not assigned; 55000: another split moves one of them; 25001: in a transaction block';

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
COMMENT ON FUNCTION @extschema@.shard_split_start_dual_write(bigint, text) IS
    'starts a split: the check runs, then the source captures changes and the target is guarded. Returns at once. on_ddl: what happens when a moving table changes on the source: ''wait'' until somebody has changed the target as well (the default), or ''apply'' changes of columns and new partitions to the target; NULL: as was said before. Example: SELECT shard_split_start_dual_write(7). 22023: on_ddl is neither of these';
COMMENT ON FUNCTION @extschema@.shard_split_settle_for(bigint, interval, bigint) IS
    'deprecated: use shard_split_auto_finish(). This name ends with version 0.4';
COMMENT ON FUNCTION @extschema@.shard_guard_drop(bigint, boolean) IS
    'deprecated: use shard_split_redirect_drop(). This name ends with version 0.4';

CREATE OR REPLACE FUNCTION shardmaster.split_waits_for_worker(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN n.nobody
                THEN format('a worker, but none is started: shardmaster.database is "%s", this database is "%s", and shared_preload_libraries "%s"',
                            current_setting('shardmaster.database', true), current_database(), current_setting('shared_preload_libraries'))
                ELSE concat_ws('; ',
                         format('a worker: all %s (shardmaster.max_split_workers) are with splits %s', s.most, w.splits),
                         'of these wait for shard_split_cutover: ' || w.rest) END
      FROM shardmaster.split_plan p
     CROSS JOIN LATERAL (SELECT current_setting('shardmaster.max_split_workers', true)::bigint) s (most)
     CROSS JOIN LATERAL (
        SELECT count(*), string_agg(o.id::text, ', ' ORDER BY o.id),
               string_agg(o.id::text, ', ' ORDER BY o.id)
                   FILTER (WHERE o.phase = 'cutover_pending' AND o.goal NOT IN ('completed', 'finished', 'rolled_back'))
          -- From the few workers to their splits, and asked of these alone, however many splits there are.
          FROM (SELECT o.id, o.phase, o.goal
                  FROM pg_stat_activity a
                  JOIN shardmaster.split_plan o ON o.id = substring(a.backend_type, '^shardmaster split ([0-9]+)$')::bigint
                 WHERE a.datname = current_database() AND o.id <> p.id OFFSET 0) o
         WHERE shardmaster.split_takes_worker(o.id)) w (count, splits, rest)
     CROSS JOIN LATERAL (SELECT shardmaster.split_starts_by_call(p.id)) n (nobody)
     WHERE p.id = $1 AND shardmaster.split_takes_worker(p.id)
       AND (n.nobody OR w.count >= s.most + (p.goal = 'rolled_back' OR p.goal = 'finished' AND p.phase = 'completed')::int)
$$;
COMMENT ON FUNCTION shardmaster.split_waits_for_worker(bigint) IS 'why a split that has work has no worker; NULL: it has one, or will in a moment';

COMMENT ON FUNCTION @extschema@.shard_add(text, text, text, bigint, text, text, text, text, int, text, text, text, text, text, text, text, boolean) IS
'adds a shard and returns its id. conninfo: as for psql, without a password (22023: use a credential, a password file or a service); NULL: this database. kind: "postgres" holds rows. Any other kind has only slots, no connection string, and optionally a uri. capacity: number of slots, NULL: unlimited. namespace: the schema of its tables. For the others see shard_set_endpoint(). checked: adds it only if shard_check() finds no problem but that another master has used it; shard_adopt() follows then (55000). Roles below superuser can add a schema of this database that they own, whose rows move only between schemas that they have added (42501). Example: SELECT shard_add(''a'', ''host=10.0.0.5 dbname=app''). 42710: it exists already';
COMMENT ON FUNCTION @extschema@.shard_keyspace_add(text, text, int, regtype, text[], text) IS
'adds a keyspace: tables that are routed by the same key. strategy: "directory" (each key has a route), "hash" (each bucket has a route), "range" (routes of shard_assign_range) or "lookup" (its keys lead to keys of another keyspace). key_type: smallint, integer, bigint, numeric (directory only), text, varchar, char, uuid or an enum. buckets: of hash, their number; NULL: one for each shard. shards: of hash, the shards that get the buckets in turn; NULL: all active servers. of: of lookup, the keyspace that its keys lead to. Example: SELECT shard_keyspace_add(''users'', ''hash'', buckets => 64, key_type => ''bigint''). 42710: it exists already; 22023: an argument that the strategy does not have';
COMMENT ON FUNCTION @extschema@.shard_keyspace_drop(text) IS
'drops a keyspace with its routes and their history. The keyspace "default" cannot be dropped (55000). Buckets and ranges are dropped with it. Example: SELECT shard_keyspace_drop(''users''). 55006: it has tables, lookup indexes, keys of a directory, splits or guards';

-- Roles by whose word something counts, whatever they are called by now.
CREATE TABLE shardmaster.known_role (
    name      text PRIMARY KEY,
    role      oid NOT NULL,
    of_system bigint NOT NULL
);
COMMENT ON TABLE shardmaster.known_role IS 'roles that added shards, tables, sequences or executions, whose rights count for these';
COMMENT ON COLUMN shardmaster.known_role.name IS 'the role''s name then, with its number if another role had used that name';
COMMENT ON COLUMN shardmaster.known_role.role IS 'its number: another role of its name is a different role';
COMMENT ON COLUMN shardmaster.known_role.of_system IS 'the database system of that number: in another one, where a dump was restored, the name counts';
SELECT pg_catalog.pg_extension_config_dump('shardmaster.known_role', '');
INSERT INTO shardmaster.known_role (name, role, of_system)
SELECT r.rolname, r.oid, c.system_identifier
  FROM pg_catalog.pg_roles r, pg_catalog.pg_control_system() c
 WHERE r.rolname IN (SELECT added_by FROM shardmaster.shard UNION SELECT named_by FROM shardmaster.table_policy
                     UNION SELECT said_by FROM shardmaster.trusted_owner UNION SELECT started_by FROM shardmaster.execution
                     UNION SELECT named_by FROM shardmaster.lookup);

-- Sequences that clients draw from by their names.
-- Sequences that no column and no default names: clients draw from them by their names.
CREATE TABLE shardmaster.keyspace_sequence (
    keyspace      text NOT NULL REFERENCES shardmaster.keyspace (name) ON DELETE CASCADE,
    sequence_name text NOT NULL CHECK (sequence_name <> ''),
    named_by      text NOT NULL,
    PRIMARY KEY (keyspace, sequence_name)
);
COMMENT ON TABLE shardmaster.keyspace_sequence IS 'sequences that clients of a keyspace''s rows use by their names; splits raise them';
COMMENT ON COLUMN shardmaster.keyspace_sequence.sequence_name IS 'as SQL writes it, quoted where needed; without schema: in the namespace of each shard';
COMMENT ON COLUMN shardmaster.keyspace_sequence.named_by IS 'the role that added it: in this database it must be allowed to set it';
SELECT pg_catalog.pg_extension_config_dump('shardmaster.keyspace_sequence', '');
CREATE FUNCTION @extschema@.shard_sequence_add(sequence text, keyspace text DEFAULT 'default') RETURNS void
SET search_path TO pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_sequence_add_wrapper';
CREATE FUNCTION @extschema@.shard_sequence_drop(sequence text, keyspace text DEFAULT 'default') RETURNS void
SECURITY DEFINER SET search_path TO pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_sequence_drop_wrapper';
CREATE FUNCTION @extschema@.shard_sequences(keyspace text DEFAULT 'default') RETURNS TABLE (sequence_name text, added_by text)
PARALLEL SAFE SECURITY DEFINER SET search_path TO pg_catalog, pg_temp
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_sequences_wrapper';
COMMENT ON FUNCTION @extschema@.shard_sequence_add(text, text) IS
    'adds a sequence to a keyspace: clients use it by its name for rows of the keyspace. Splits then raise it on the target past its value on the source, as they do with sequences of columns, of their defaults, and of functions in defaults and triggers. sequence: name (in each shard''s namespace) or schema.name (on every shard), quoted as in SQL. Active splits raise it as well. In the master''s own database the caller must have the right to set it. Example: SELECT shard_sequence_add(''invoice_no''). 42710: it is already there; 22023: not a name; 42704: no such keyspace';
COMMENT ON FUNCTION @extschema@.shard_sequence_drop(text, text) IS
    'removes a sequence from a keyspace that shard_sequence_add() added. The sequence itself stays. Example: SELECT shard_sequence_drop(''invoice_no''). 42704: it is not in the keyspace';
COMMENT ON FUNCTION @extschema@.shard_sequences(text) IS
    'lists the sequences that shard_sequence_add() has added to a keyspace, as SQL writes their names, and who added each. Example: SELECT * FROM shard_sequences()';

-- Monitors may ask what is wrong with a split, which their alerts tell them to.
GRANT EXECUTE ON FUNCTION @extschema@.shard_split_diagnose(bigint) TO pg_monitor;

-- Rows on the wrong shard that are nowhere else are deleted by name only: one argument more.
DROP PROCEDURE @extschema@.shard_misplaced_delete(text, text[], text, text[], interval, bigint);
CREATE PROCEDURE @extschema@.shard_misplaced_delete(
    shard text, keys text[], keyspace text DEFAULT 'default', tables text[] DEFAULT NULL,
    timeout interval DEFAULT '10 min', INOUT run_id bigint DEFAULT NULL, rows text DEFAULT 'on_both')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    done pg_catalog.record;
BEGIN
    run_id := shardmaster.misplaced_begin(pg_catalog.concat('delete_', rows), shard, keys, keyspace, tables, true, timeout);
    COMMIT;
    WHILE shardmaster.misplaced_step(run_id) LOOP
        COMMIT;
    END LOOP;
    FOR done IN SELECT r.table_name, r.deleted FROM shardmaster.misplaced_runs(run_id) r
                 WHERE r.table_name IS NOT NULL LOOP
        RAISE NOTICE 'table "%": % rows deleted', done.table_name, done.deleted;
    END LOOP;
END $$;

COMMENT ON PROCEDURE @extschema@.shard_misplaced_delete(text, text[], text, text[], interval, bigint, text) IS
'deletes rows of keys that are on another shard than they are routed to, with the caller''s login on both. rows: "on_both", all, if the right shard has a row of the same key with each one''s primary key, and otherwise none (55000); "conflicting", only those whose primary key the right shard has with other content, after which shard_misplaced_move() takes the rest; "all", also of keys without a route, where rows that exist nowhere else are lost. tables, timeout, run_id and errors as of shard_misplaced_move(). Example: CALL shard_misplaced_delete(''a'', ''{42}'')';

-- When a claim of a lookup index ends.
COMMENT ON FUNCTION @extschema@.shard_lookup_claim(text, text, text, interval) IS
'claims a key of a lookup index for an owner before its row is inserted. From then on the key leads to that owner. Returns until when, or NULL if the index already has the row; then the claim is kept beside it. lease: how long the claim holds without a row. Example: SELECT shard_lookup_claim(''ann@example.com'', ''42'', ''emails''). 23505: another owner has it, or has claimed it; 42704: the owner has no route; 55000: not all shards have been read yet, or the lease of another owner has expired and his shard has not been asked for the row since';

-- Statements on all shards run without policies that hide rows, unless it is said: one argument more.
ALTER TABLE shardmaster.execution ADD COLUMN by_policies boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN shardmaster.execution.by_policies IS 'it runs on the rows that the login''s policies show; otherwise a policy that would hide rows is an error';
DROP PROCEDURE @extschema@.shard_execute(text, text, text[], int, boolean, interval, bigint, boolean);
DROP FUNCTION shardmaster.execution_begin(text, text, text[], int, boolean, interval, boolean);
CREATE FUNCTION shardmaster.execution_begin(sql text, keyspace text, shards text[], wave int, in_transaction bool, timeout interval, two_phase bool DEFAULT false, by_policies bool DEFAULT false)
RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_execution_begin_by_wrapper';
CREATE PROCEDURE @extschema@.shard_execute(
    sql text, keyspace text DEFAULT 'default', shards text[] DEFAULT NULL, wave int DEFAULT 1,
    in_transaction boolean DEFAULT true, timeout interval DEFAULT '10 min', INOUT execution_id bigint DEFAULT NULL,
    two_phase boolean DEFAULT false, by_policies boolean DEFAULT false)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    execution_id := shardmaster.execution_begin(sql, keyspace, shards, wave, in_transaction, timeout, two_phase, by_policies);
    COMMIT;
    CALL shardmaster.execute_resume(execution_id, false, timeout);
END $$;

COMMENT ON PROCEDURE @extschema@.shard_execute(text, text, text[], int, boolean, interval, bigint, boolean, boolean) IS
'runs one statement once on each active shard, or on each named one, with the caller''s login there. wave: on how many shards at a time. in_transaction: in a transaction on each shard, which commits once the master has recorded that it will; false: without one, for what cannot run in one. timeout: how long each shard may take, in all. The first failure ends it, with the shard''s SQLSTATE; shard_execute_resume() continues it. execution_id: returns its number. two_phase: on all shards or on none, in prepared transactions, also after an interruption; the worker ends what is left. by_policies: on the rows that policies of the shards show the login; false: a policy that would hide rows is an error. Example: CALL shard_execute(''CREATE INDEX ON orders (placed_at)''). 22023: a statement that ends transactions; 42501: no login, or a policy would hide rows from it; 55000: two_phase, and a shard cannot prepare so many transactions; 55006: a split is active on a shard';
COMMENT ON FUNCTION shardmaster.execution_begin(text, text, text[], int, boolean, interval, boolean, boolean) IS
'internal: what shard_execute() records first';

-- Whose rows questions give.
COMMENT ON FUNCTION @extschema@.shard_query_json(text, text, text[], interval, text) IS
'runs one query on all active shards at once, or on the named ones, read-only and with the caller''s login there. Returns its rows as JSON, in any order. Rows are fetched as they are needed, and a LIMIT ends the query on all shards. Each key is answered by one shard, also while splits move it. Rows that policies of a shard hide from the login are missing. timeout: how long each shard may take, in all. on_error: raise, or report, which returns {"shard_error": {..}} in place of the missing rows of a shard. Example: SELECT * FROM shard_query_json(''SELECT count(*) FROM orders''). 42501: no login; 55000: a split is active, and the query may read rows that it hides; 40001: splits were too fast; 25001: not in REPEATABLE READ; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_import(text, text, text, interval) IS
'creates a foreign table for each table of a keyspace in a schema of the master, with the columns of one shard (by default the first active one). Called again, it corrects those that exist. A query of one asks the active shards of that moment with the reader''s own login, as shard_query() does: each key is answered by one shard, also while splits move it. Rows that policies of a shard hide from the login are missing. Example: SELECT * FROM shard_import(). 42501: no login; 42704: a shard lacks a table; 42710: another object has the name; 55000: no tables, no shard, or a split is active and the table is hidden; 25001: not in REPEATABLE READ';

-- What shards know of cutovers that a restored master does not.
ALTER TABLE shardmaster.installation ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp();
ALTER TABLE shardmaster.keyspace ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp();
COMMENT ON COLUMN shardmaster.keyspace.created_at IS 'by which shards distinguish it from an earlier or later keyspace of its name';

-- Decided cutovers that shards know and this master did not when it asked them: it was restored,
-- or promoted, to a time before. Not dumped: a restored master asks its own shards.
CREATE TABLE shardmaster.shard_decision (
    shard_key  text NOT NULL REFERENCES shardmaster.shard (shard_key) ON UPDATE CASCADE ON DELETE CASCADE,
    split_id   bigint NOT NULL,
    token      text NOT NULL,
    keyspace   text NOT NULL,
    version    bigint NOT NULL,
    side       text NOT NULL CHECK (side IN ('source', 'target', 'neither')),
    from_shard text NOT NULL,
    to_shard   text NOT NULL,
    entries    text NOT NULL,
    said_by    text NOT NULL CHECK (said_by IN ('redirect', 'side', 'note', 'earlier')),
    key_count  bigint NOT NULL,
    keys       text[],
    keyspace_made bigint,
    tables     text[],
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_key, token, split_id)
);
CREATE INDEX shard_decision_keyspace ON shardmaster.shard_decision (keyspace);
COMMENT ON TABLE shardmaster.shard_decision IS 'decided cutovers that a shard records and this master did not know when it asked; not dumped';
COMMENT ON COLUMN shardmaster.shard_decision.said_by IS 'where the shard records it: a redirect, the state of a side, the record of the last cutover, or what that one says of those before it';
COMMENT ON COLUMN shardmaster.shard_decision.entries IS 'what the entries are: keys, or buckets or ranges with their number and type';
COMMENT ON COLUMN shardmaster.shard_decision.keys IS 'entries of routing that moved; NULL: the shard no longer knows them';
COMMENT ON COLUMN shardmaster.shard_decision.keyspace_made IS 'when their keyspace was made, in microseconds since 1970; NULL: the shard does not know it';
COMMENT ON COLUMN shardmaster.shard_decision.tables IS 'its tables then, as the master named them; NULL: the shard does not know them';

-- Those that shard_adopt() has taken over: no plan stands for them here.
CREATE TABLE shardmaster.adopted_decision (
    token      text NOT NULL,
    split_id   bigint NOT NULL,
    keyspace   text NOT NULL,
    version    bigint NOT NULL,
    from_shard text,
    to_shard   text,
    key_count  bigint NOT NULL DEFAULT 0,
    keys       text[],
    routes_kept boolean NOT NULL DEFAULT false,
    adopted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (token, split_id)
);
COMMENT ON TABLE shardmaster.adopted_decision IS 'decided cutovers that shard_adopt() has adopted from shards';
COMMENT ON COLUMN shardmaster.adopted_decision.keys IS 'entries of routing that moved; NULL: no shard knew them any more';
COMMENT ON COLUMN shardmaster.adopted_decision.routes_kept IS 'the operator has decided that their routes stay as they were';
CREATE INDEX adopted_decision_version ON shardmaster.adopted_decision (keyspace, version);
CREATE INDEX split_plan_cutover ON shardmaster.split_plan (keyspace, routing_version_cutover) WHERE phase = 'completed';

-- Where somebody else moves its rows, or it did not answer, it is asked again. Not dumped.
CREATE TABLE shardmaster.shard_asked (
    shard_key text PRIMARY KEY REFERENCES shardmaster.shard (shard_key) ON UPDATE CASCADE ON DELETE CASCADE,
    run       text,
    asked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem   text
);
COMMENT ON TABLE shardmaster.shard_asked IS 'when each shard was last asked which decisions it records; not dumped';
COMMENT ON COLUMN shardmaster.shard_asked.run IS 'the run of this server in which it has answered';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.adopted_decision', '');

-- As of now: a worker that takes a split up may have taken its decision over meanwhile. One that is
-- about to is waited for by clients of what moves alone, whom the source sends away itself. The word
-- of a shard that was disabled counts no more.
CREATE VIEW shardmaster.lost_decision AS
    SELECT d.* FROM shardmaster.shard_decision d JOIN shardmaster.shard known ON known.shard_key = d.shard_key
     WHERE known.status <> 'disabled'
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p
                        WHERE p.id = d.split_id AND p.token = d.token AND p.phase = 'completed')
       AND NOT EXISTS (SELECT FROM shardmaster.adopted_decision a
                        WHERE a.token = d.token AND a.split_id = d.split_id)
       -- What was taken back moves nothing any more.
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p JOIN shardmaster.split_plan back ON back.reverse_of = p.id
                        WHERE p.id = d.split_id AND p.token = d.token AND back.phase = 'completed')
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p JOIN shardmaster.shard_decision s
                               ON s.split_id = p.id AND s.token = p.token AND s.side = 'source' AND s.said_by IN ('redirect', 'side')
                        WHERE p.id = d.split_id AND p.token = d.token AND p.finished_at IS NULL
                          AND p.phase <> 'rolled_back' AND p.activity NOT IN ('failed', 'paused')
                          -- One that has installed nothing takes nothing over: it would begin anew. A reverse split was installed by its split.
                          AND NOT (p.phase = 'planning' AND (p.goal = 'planning' OR p.reverse_of IS NULL)));
COMMENT ON VIEW shardmaster.lost_decision IS 'decided cutovers that shards record and this master does not know: their keyspaces are not routed for writing';

-- Keyspaces of which shards know more than this master are not routed for writing.
CREATE TRIGGER routing_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON shardmaster.shard_decision
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
DROP FUNCTION @extschema@.shard_adopt(text);
CREATE TYPE shardmaster.adopt_row AS (
    said_by text, keyspace text, key text, routed_to text, moved_to text, split_id bigint, version bigint, action text);
COMMENT ON TYPE shardmaster.adopt_row IS 'the columns of shard_adopt()';
CREATE FUNCTION @extschema@.shard_adopt(
    shard_key text DEFAULT NULL,
    dry_run boolean DEFAULT false,
    keep_routes bigint[] DEFAULT NULL
) RETURNS SETOF shardmaster.adopt_row
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c
AS 'MODULE_PATHNAME', 'shard_adopt_wrapper';
COMMENT ON FUNCTION @extschema@.shard_adopt(text, boolean, bigint[]) IS
    'after a restore of the master: asks one shard, or all (NULL), which decided cutovers it records that this master does not know, and adopts them in a new routing version. Returns a row for each key: the shard that records it, where it is routed, where it has moved. A shard of another master then belongs to this one, so call it only when the other master is gone for good. The next splits get numbers that no shard knows. dry_run: changes nothing and shows what would be done. keep_routes: numbers of splits whose keys stay where this master routes them, because the operator has looked for their rows. With all shards, one that does not answer is named, and the others are adopted. Assignments made by hand are not recorded on shards: shard_misplaced() and shard_unassigned() find them by their rows. Example: SELECT * FROM shard_adopt(dry_run => true). 42704: no such shard, or no shard knows a split of keep_routes; 08xxx: the named shard does not answer; 25001: in a transaction block, whose ROLLBACK would not undo it';
COMMENT ON FUNCTION @extschema@.shard_of(text, text, text) IS
'returns the shard_key of the shard that holds a key. intent: "read" never waits. "write" waits while a split holds back the key''s writes, up to shardmaster.route_wait_timeout, then raises SM002; in REPEATABLE READ and SERIALIZABLE it raises 40001 at once. Works on a standby. Example: SELECT shard_of(''42''). 42704: the key is not assigned; 55000: its shard is disabled, or, to write, a shard records a cutover in the keyspace that this master, which was restored, does not know: shard_adopt()';
COMMENT ON FUNCTION @extschema@.shard_route_range(text, text, text, text) IS
'the shards of the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace, one row for each part, in their order, with conninfo for clients. With intent write it waits for a part that a split is moving, up to shardmaster.route_wait_timeout (SM002). Example: SELECT * FROM shard_route_range(''1000'', ''2000'', ''orders''). 42704: a part is not assigned; 22023: not a range keyspace; 55000: a shard is disabled, or as of shard_of()';
COMMENT ON FUNCTION @extschema@.shard_check(text) IS
'connects to a shard as splits do and reports whether it is ready: connection, round trip, clock, role, encryption, rights, settings, what is installed, guards that differ from what this master knows, and decided cutovers that this master does not know. Nothing in a keyspace of such a cutover is routed for writing from then on. ok: whether it is right. hint: what to do. Changes nothing on the shard. Example: SELECT * FROM shard_check(''a''). 42704: no such shard; 22023: a shard of another kind';
COMMENT ON FUNCTION @extschema@.shard_drop(text) IS
'removes a shard from the topology. Its rows stay. Warns if it has copies of reference tables, which still refuse writes. A shard that splits have moved keys to or from is asked to forget this master; one that does not answer is dropped with a warning, and within a transaction block it is not asked. Its shard_index is not used again. Example: SELECT shard_drop(''a''). 55006: keys are routed to it, or an active split or a guard uses it';
COMMENT ON FUNCTION @extschema@.shard_status() IS
'whether everything is in place for splits to run, one row each: version of extension and library, preload, database, launcher, coordinator (pid and last sign of life), split workers, free background worker slots. Then a row for each decided cutover that a shard records and this master does not know, for each shard that could not be asked, for each unfinished split, and for each statement of shard_execute() in two phases that is left on shards. If ok is false, value says what to do. Example: SELECT * FROM shard_status()';

-- Numbers of its own for each shard.

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

CREATE FUNCTION @extschema@.shard_sequences_spread(
    keyspace text DEFAULT 'default', block bigint DEFAULT 1099511627776, below bigint DEFAULT 9007199254740992,
    dry_run boolean DEFAULT false, timeout interval DEFAULT '1 min')
RETURNS TABLE (shard text, sequence text, first bigint, last bigint, outcome text)
LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'shard_sequences_spread_wrapper';
COMMENT ON FUNCTION @extschema@.shard_sequences_spread(text, bigint, bigint, boolean, interval) IS
    'gives the sequences that fill columns of a keyspace''s tables numbers of their own on each shard: a block of numbers each, after all that any shard has in sequences and rows. Online, outside of a transaction, with the rights of the mover. Call it again after a shard was added, or after an error. block: the length of a block (2^40). below: the limit of all numbers (2^53). outcome: kept (no other shard can give out its numbers), given (it got a block), or left unchanged with the reason. increment stays. dry_run: shows what it would do. Example: SELECT * FROM shard_sequences_spread(dry_run => true). 42501: the mover cannot set a sequence; 55000: a sequence of a unique key without the shard-by column cannot have a block (smaller type, CYCLE, counts down, partitions without room), and nothing is changed; 08006: a shard does not answer';

-- Remarks of a check that an operator accepts by name.

-- What shard_split_accept() says.
CREATE TABLE shardmaster.split_accepted (
    split_id    bigint NOT NULL REFERENCES shardmaster.split_plan (id),
    check_name  text NOT NULL,
    object      text NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (split_id, check_name, object)
);
COMMENT ON TABLE shardmaster.split_accepted IS 'remarks of the check of a split that its operator has accepted';
COMMENT ON COLUMN shardmaster.split_accepted.object IS 'what the remark is about, as shard_split_check() shows it';
SELECT pg_catalog.pg_extension_config_dump('shardmaster.split_accepted', '');

CREATE FUNCTION @extschema@."shard_split_accept"(
    "split_id" bigint,
    "check_name" TEXT,
    "object" TEXT
) RETURNS VOID
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_split_accept_wrapper';
COMMENT ON FUNCTION @extschema@.shard_split_accept(bigint, text, text) IS
    'accepts a remark of shard_split_check(), which stops the split until then. The remark is named by the check''s columns check_name and object. It is kept with the plan and in its events. Example: SELECT shard_split_accept(7, ''source: large objects'', ''public.files''). 55000: the split has begun; 22023: not a check whose remarks can be accepted; 42704: no such split';

-- What is not made, and what may be added while a split runs.

COMMENT ON FUNCTION @extschema@.shard_schema_copy("from" text, "to" text, text, text[], boolean, boolean, boolean, interval) IS
'creates on one shard what it lacks of another one''s tables of a keyspace, and lists the statements: schemas, types, functions, sequences, tables, partitions, constraints, indexes, statistics, triggers, policies, owners, grants, comments; no rows. It works with the caller''s login there, in one transaction, whose result is compared with the other shard before it commits. What takes long on tables with rows comes after that, without locks that writers wait for. Nothing that exists is changed. statement: NULL for what is missing and not created (views, sequences and functions that the tables do not need). also: tables besides those of the keyspace. secondary: with foreign keys and indexes that are not unique. rights: with owners and grants. dry_run: creates nothing. Example: SELECT * FROM shard_schema_copy(''a'', ''b'', dry_run => true). 55000: something is different there, or cannot be created by this call, and nothing was created; 42P01: the first shard lacks a table; 42501: no login, or one without a right there; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_table_add(text, text, text, regtype, text, text) IS
'adds a table to a keyspace. table_name: name (in each shard''s namespace) or schema.name (on every shard), quoted as in SQL. shard_by: the plain name of the column that holds the key. The keyspace "default" takes its key type from key_type, or from the column of the first table that a shard in this database has, and is otherwise of text. policy: "sharded"; "reference", a table whose rows every shard copies from the shard origin; or "global", a table whose rows stay where they are. The last two have no shard_by (NULL). Example: SELECT shard_table_add(''orders'', ''tenant_id''). 42703: no such column; 42710: it is already there; 55006: an active split works on the keyspace, and the table is not global';

-- Roles that are gone: a dump had them by their numbers, which are somebody else's where it is restored.

DELETE FROM shardmaster.shard_login WHERE role NOT IN (SELECT oid FROM pg_catalog.pg_roles);
SELECT pg_catalog.pg_extension_config_dump('shardmaster.shard_login', 'WHERE role IN (SELECT oid FROM pg_catalog.pg_roles)');
ALTER TABLE shardmaster.execution ALTER COLUMN login_role TYPE text USING login_role::text;
COMMENT ON COLUMN shardmaster.execution.login_role IS 'the role with whose logins it runs and, with two_phase, ends: only the login that prepared a transaction may end it. The role''s name as in SQL, quoted if needed, because a number would mean another role in a restored copy';

-- By what shards know that a reference table was taken out.

ALTER TABLE shardmaster.reference_table ADD COLUMN token text;
COMMENT ON COLUMN shardmaster.reference_table.token IS 'identifies its removal on shards, whatever has its number and name since; NULL, of a row of 0.1.0: derived from its set, number and name';

COMMENT ON COLUMN shardmaster.reference_copy.as_of IS 'of the tables in filled, what was committed on the origin by then is there';

COMMENT ON COLUMN shardmaster.split_plan.reverse_of IS
    'the split that this one reverses: from its target to its source, armed until shard_split_reverse()';
COMMENT ON COLUMN shardmaster.split_plan.baseline IS
    'of a reverse split: the definitions of its source''s tables when nobody could write to the moving keys there yet';
COMMENT ON COLUMN shardmaster.split_plan.copy_again IS
    'a reverse split may replace rows that were not compared since the cutover: the operator has allowed it';
COMMENT ON COLUMN shardmaster.split_settle.queue_bytes IS
    'the size of the reverse split''s queue; NULL: at any size';
COMMENT ON FUNCTION @extschema@.shard_lookup(text, text) IS
    'the key of the other keyspace that a key of a lookup index leads to: its owner. Example: SELECT shard_lookup(''ann@example.com'', ''emails''). 42704: no row of the table has the key, as far as the index knows; 55000: not all shards have been read yet; 22023: the keyspace is not a lookup index';
COMMENT ON FUNCTION @extschema@.shard_lookup_conflicts(text) IS
    'keys of a lookup index of which several owners have a row: a row for each owner that the key does not lead to. routed_to: the owner that it leads to. When that owner''s row is deleted, the next one takes its place. Example: SELECT * FROM shard_lookup_conflicts(''emails'')';
COMMENT ON FUNCTION @extschema@.shard_lookups() IS
    'each lookup index with each of its shards. state: new, filling, sweeping (pairs are checked again, because changes may have been missed) or filled. waiting: changes that are queued there, up to 100000. lag_seconds: the age of the oldest. waits_for: why it does not go on. Example: SELECT * FROM shard_lookups()';
COMMENT ON FUNCTION @extschema@.shard_guards() IS
    'what refuses clients: both sides of active splits and redirects of finished ones, and key guards. side: source, target, or standing for a key guard. state: of a source capture, fenced or moved; of a target closed or open; of a finished split redirect, or ending and asking while keys are assigned to the shard again; of a key guard installing, guarded, partial (a table was added since, and needs another call), removing or left (removed by force, until shard_cleanup()). keys: the number of entries. tables: the number of tables, of a key guard those with its triggers; see the view shardmaster.shard_guard. Example: SELECT * FROM shard_guards()';
COMMENT ON TABLE shardmaster.lookup_entry IS
    'the owner of each key of a lookup index: by a row of its shard, or claimed until such a row arrives';
COMMENT ON TABLE shardmaster.lookup_conflict IS
    'owners of keys of a lookup index that lead to another owner: see shard_lookup_conflicts()';
COMMENT ON TABLE shardmaster.lookup_shard IS
    'how far each lookup index is with each shard; see shard_lookups()';
COMMENT ON TABLE shardmaster.lookup_removal IS
    'shards on which something of a former lookup index is left';
COMMENT ON TABLE shardmaster.lookup_assigned IS
    'entries of routing that were assigned or removed, and whose rows are to be checked for a lookup index';
COMMENT ON FUNCTION shardmaster.lookup_assigned() IS
    'internal: requests a check of the rows of assigned keys for lookup indexes';
COMMENT ON TABLE shardmaster.lookup_signal IS
    'its invalidation tells sessions that owners of lookup indexes have changed; always empty';
COMMENT ON FUNCTION @extschema@.shard_split_reverse(bigint, boolean) IS
    'takes a completed split back: its reverse split brings what clients have changed on the target to the source, then one commit sends clients there again. Returns the id of the reverse split. Where the changes are not known, for example after its queue was full, all rows of a table are copied. They replace rows of the source if shard_split_verify() has compared these since the cutover, or if copy_again allows it. Example: SELECT shard_split_reverse(7). 55000: there is no reverse split, or the split is not completed';
COMMENT ON TABLE shardmaster.standing_guard IS
    'key guards of shards: see shard_guard_install()';
COMMENT ON VIEW shardmaster.shard_guard IS
    'key guards, as this master knows them. state: installing; guarded; partial; removing; left: removed by shard_guard_remove(.., force => true), so that the shard may refuse keys until shard_cleanup(). keys: entries that are routed there. tables: those that have triggers or will get them; not_guarded: those of the keyspace that shard_guard_install() has not seen yet';

CREATE OR REPLACE FUNCTION shardmaster.split_moves(scope_kind text, entries text[], reverse_of bigint) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN reverse_of IS NOT NULL THEN format('reverse split of split %s', reverse_of)
                WHEN scope_kind = 'range' THEN 'keys from ' || array_to_string(entries[:3], ' ')
                WHEN scope_kind = 'all' THEN 'all, in ' || shardmaster.counted(n.count, 'entry', 'entries')
                WHEN n.count = 1 THEN format('%s %s', rtrim(scope_kind, 's'), entries[1])
                ELSE format('%s %s', n.count, scope_kind) END
      FROM (SELECT cardinality(entries)) n (count)
$$;
CREATE OR REPLACE FUNCTION shardmaster.split_settles(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'finishes automatically ' || concat_ws(', or ', s.age || ' after the cutover',
                                   'when the queue of its reverse split has ' || s.queue_bytes || ' bytes')
           || CASE WHEN EXISTS (SELECT FROM shardmaster.split_verification v WHERE v.split_id = $1
                                                AND (v.differing > 0 OR v.differed > 0 OR v.status IN ('pending', 'running')))
                   THEN ', but not while rows are compared or known to differ' ELSE '' END
      FROM shardmaster.split_settle s WHERE s.split_id = $1
$$;

COMMENT ON FUNCTION @extschema@.shard_trust_owner(text, text) IS
    'allows splits to run functions and expressions that the role has written, with all rights of the mover on this shard. role: its plain name on the shard''s server. The shard is asked for its number: a later role of the same name is not trusted. Roles below superuser cannot call it for the master''s own database, at any address, nor for its server if the mover is a superuser there. Example: SELECT shard_trust_owner(''a'', ''app_owner''). 42501: a caller who cannot; 42704: no such shard or role; 22023: a shard without rows; 08006: the server cannot be reached';

COMMENT ON FUNCTION @extschema@.shard_split_plan(text, text, text[], text, text) IS
    'plans a split that moves tenants (in a hash keyspace: buckets) from one shard to another, and returns its id. Nothing is asked of the shards. What is wrong by the catalog is refused. Example: SELECT shard_split_plan(''a'', ''b'', ''{42}''). 22023: a key is not routed to the source, or the target takes none; 55006: another split moves a key';
COMMENT ON FUNCTION @extschema@.shard_split_run_backfill(bigint) IS
    'starts the copy, or resumes one that has failed. Returns at once. Example: SELECT shard_split_run_backfill(7)';
COMMENT ON FUNCTION @extschema@.shard_split_replay_tail(bigint) IS
    'applies the queued changes now, or resumes a split that has failed while it followed its source. Returns at once. Example: SELECT shard_split_replay_tail(7)';
COMMENT ON FUNCTION @extschema@.shard_split_cutover(bigint, interval, timestamptz, timestamptz, integer) IS
    'asks for the cutover of a split in phase cutover_pending. Returns at once. max_fence: how long writers may wait (NULL: shardmaster.cutover_timeout, which is the limit in any case). not_before, until: when it may begin. attempts: how often it is tried, a second to a minute apart. After the last failed attempt the split follows its source again. Example: SELECT shard_split_cutover(7, ''2 s''). 22023: a window that is over; 55000: not in this phase, or rows that differ';
COMMENT ON FUNCTION @extschema@.shard_split_rehearse(bigint, interval) IS
    'does everything that a cutover does up to its decision, and sets it back. Writers wait as they would, at most max_fence (NULL: shardmaster.cutover_timeout). Nothing changes. shard_split_metrics() shows the time as rehearsed_ms, shard_split_events() for whom it waited. Returns at once. Example: SELECT shard_split_rehearse(7). 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_rollback(bigint, boolean) IS
    'rolls a split back before its cutover has decided: both sides are cleaned. Returns at once. target_lost: the target is gone for good and is not asked; shard_cleanup() removes what it holds, should it come back. With target_lost a decided cutover is withdrawn as long as the target has not opened. Example: SELECT shard_split_rollback(7). 55000: the cutover has decided';
COMMENT ON FUNCTION @extschema@.shard_split_finish(bigint, boolean, boolean) IS
    'finishes a completed split: deletes the moved rows from the source, each after the target has shown that it has it, or that a client has deleted it there. Returns at once. A row that the target does not have stops the finish and stays. accept_missing: such rows may be deleted. source_lost: the source is gone for good and is not asked. Example: SELECT shard_split_finish(7). 55000: not completed';
COMMENT ON FUNCTION @extschema@.shard_split_pause(bigint) IS
    'pauses a split after its current step. Changes are queued meanwhile. Example: SELECT shard_split_pause(7)';
COMMENT ON FUNCTION @extschema@.shard_split_resume(bigint) IS
    'resumes a split that is paused or has failed. Example: SELECT shard_split_resume(7)';
COMMENT ON FUNCTION @extschema@.shard_split_wait(bigint, text, interval) IS
    'waits until a split has reached a phase, ''finished'' or ''reversed'', and returns the phase. Raises the split''s error. Example: SELECT shard_split_wait(7, ''completed''). 57014: not within the timeout';
COMMENT ON FUNCTION @extschema@.shard_split_verify(bigint) IS
    'compares every row of a split on both sides, in the background and while clients write, before its cutover and after it, until it is finished. shard_split_verification() shows how far that is and what it has found. Example: SELECT shard_split_verify(7). 42704: no such split; 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_repair(bigint) IS
    'copies the rows again that shard_split_verify() has found to differ, and verifies their tables again. Only before the cutover. Returns how many rows they are. Example: SELECT shard_split_repair(7). 42704: no such split; 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_points() IS
    'the injection points of a split, in their order; see the setting shardmaster.fault. Example: SELECT * FROM shard_split_points()';
COMMENT ON FUNCTION @extschema@.shard_splits(boolean) IS
    'one row for each split that is neither finished nor rolled back: what it moves, how far it is, what it waits for or why it has failed, and what to call next. ended: the others as well. Example: SELECT * FROM shard_splits(). shard_split_metrics() has all figures and the whole texts';
COMMENT ON FUNCTION @extschema@.shard_assign_found(text, text[], interval, text) IS
    'assigns each unassigned key of a directory keyspace to the shard that has its rows (see shard_unassigned), ten thousand keys in a routing version. A key with rows on several shards, rows without a key, and a key that cannot be assigned each get a row with the reason instead. No row moves. Example: SELECT * FROM shard_assign_found(''default''). Errors as of shard_unassigned';
COMMENT ON FUNCTION @extschema@.shard_cleanup(text) IS
    'removes from a shard what is left of splits that this master does not know as active. A redirect stays while this master routes one of its keys to the shard. Example: SELECT * FROM shard_cleanup(''a''). 25001: in a transaction block, whose ROLLBACK would not undo it';
COMMENT ON FUNCTION @extschema@.shard_assign(text, text, text, boolean, text) IS
    'routes a key to a shard and returns the routing version: a new one, or the current one if the key is already there. No row moves: a key that is routed to another shard needs force (55000 otherwise). Example: SELECT shard_assign(''42'', ''a''). 22P02: the key is not a value of the key type; 42704: unknown shard or keyspace; 55000: the shard is disabled; 55006: an active split moves the key';
COMMENT ON FUNCTION @extschema@.shard_assign_many(text[], text, text, boolean, text) IS
    'as shard_assign, for many keys in one routing version: all of them or none. For arrays of bigint and uuid use shard_assign_keys. Example: SELECT shard_assign_many(''{41,42}'', ''a''). 22004: a key is NULL; 22023: no key, or one given twice';
COMMENT ON FUNCTION @extschema@.shard_assign_bucket(int, text, text, boolean, text) IS
    'routes a bucket of a hash keyspace to a shard and returns the routing version: a new one, or the current one if it is already there. No row moves: a bucket that is routed to another shard needs force (55000 otherwise). Example: SELECT shard_assign_bucket(7, ''a'', ''users''). 22023: no such bucket, or not a hash keyspace; 42704: unknown shard or keyspace; 55000: the shard is disabled; 55006: an active split moves the bucket';
COMMENT ON FUNCTION @extschema@.shard_assign_range(text, text, text, text, boolean, text) IS
    'routes the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace to a shard. Returns the routing version: a new one, or the current one if they are already there. Ranges across a bound are divided there. Numbers and uuids are compared by value, texts by their bytes. No row moves: keys that are routed to another shard need force (55000 otherwise). Example: SELECT shard_assign_range(''1000'', ''2000'', ''a'', ''orders''). 22023: no key between the bounds, or not a range keyspace; 22P02: a bound is not a value of the key type; 42704: unknown shard or keyspace; 55006: an active split moves some of the keys';
COMMENT ON FUNCTION @extschema@.shard_join_ranges(text, text, text) IS
    'joins adjacent ranges of the same shard between the bounds (NULL: all) and returns the routing version: a new one, or the current one if there are none. Ranges of active splits stay as they are. Example: SELECT shard_join_ranges(''orders'')';
COMMENT ON FUNCTION @extschema@.shard_unassign(text, text) IS
    'removes the route of a key and returns the new routing version. Its rows stay. Example: SELECT shard_unassign(''42''). 42704: not assigned; 55006: an active split moves the key';
COMMENT ON FUNCTION @extschema@.shard_routing_rollback(bigint, text) IS
    'creates a new routing version that routes as the given one did, and returns it; the current one, if they are the same. Example: SELECT shard_routing_rollback(12). 55000: a split has moved a key since, or a shard is gone or disabled; 55006: an active split moves a key';
COMMENT ON FUNCTION @extschema@.shard_set_service(text, text) IS
    'sets where the service of a shard answers requests for its keys: host:port, [address]:port or unix:/path; several replicas with commas; NULL: nowhere. Example: SELECT shard_set_service(''a'', ''10.0.0.5:8080''). 22023: not an address; 42704: no such shard';
COMMENT ON FUNCTION @extschema@.shard_services() IS
    'lists the shards with the addresses of their services, by shard_index. Example: SELECT * FROM shard_services()';
COMMENT ON FUNCTION @extschema@.shard_gateway_config(text, text, text, text) IS
    'returns a configuration that sends each request to the service of its key''s shard, by the current routing version. gateway: "nginx", a server for its http block, with the Lua module; "nginx-upstreams" and "nginx-location", its two parts, for a server of your own; "lua", a chunk that returns a function from a key to its upstream; "pgbouncer", the section [databases] with every shard, which uses no other argument. key_from: where a request has its key, header:NAME, query:NAME or path:NUMBER. listen: where the server listens. Warns of shards that have keys and no service. Example: SELECT shard_gateway_config(''nginx'', key_from => ''header:X-Tenant''). 22023: an argument has another value; 42704: no such keyspace';
COMMENT ON FUNCTION @extschema@.shard_for(bigint, int) IS
    'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the 8 bytes of the key, the lowest first, modulo shard_count. It never changes. Example: SELECT shard_for(42, 16). 22023: shard_count is not positive; 22004: an argument is NULL';
COMMENT ON FUNCTION @extschema@.shard_for(text, int) IS
    'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the key in UTF-8, modulo shard_count. It never changes. Example: SELECT shard_for(''acme'', 16). 22023: shard_count is not positive; 22004: an argument is NULL';
COMMENT ON FUNCTION @extschema@.shard_for(uuid, int) IS
    'the number of a key''s shard, or bucket, from 0 to shard_count - 1: XXH64 with seed 0 over the key''s 16 bytes, modulo shard_count. It never changes. Example: SELECT shard_for(gen_random_uuid(), 16). 22023: shard_count is not positive; 22004: an argument is NULL';
COMMENT ON FUNCTION @extschema@.shard_entries(text) IS
    'lists the current routes. status "disabled": a split holds back writes, which will go to write_shard. version: the routing version since which the route holds. Example: SELECT * FROM shard_entries()';
COMMENT ON FUNCTION @extschema@.shard_routing_version(text) IS
    'returns the current routing version of a keyspace; 0 before the first change. Example: SELECT shard_routing_version()';
COMMENT ON FUNCTION @extschema@.shard_routing_history(text) IS
    'lists every change of routing: a row for each key of each version. from_shard: NULL, if the key was newly assigned. to_shard: NULL, if its route was removed. split_id: the split that moved the rows. Example: SELECT * FROM shard_routing_history()';
COMMENT ON FUNCTION @extschema@.shard_route_at(text, bigint, text) IS
    'returns the shard that a routing version routes a key to. Example: SELECT shard_route_at(''42'', 12). 42704: no such version, or the key was not assigned in it';
COMMENT ON FUNCTION @extschema@.shard_credential_set(text, text, jsonb) IS
    'creates a credential for shards, or replaces its secret. The secret is encrypted with the first of the master keys, and nobody can read it. auth_kind: password {"password", "username"}, mtls_cert {"certificate", "key", "key_password", "username"}, token_command {"command"}, token_file {"file"}, gcp_workload_identity {"account", "host"}, aws_iam {"region", "profile"}, of which username, key_password, account, host and profile are optional. New sessions of splits use it. For the last four kinds, and for a username, a superuser is needed (42501): the server runs or reads what they name, and a username names the mover. If the library is preloaded, the statement is not logged. Example: SELECT shard_credential_set(''north'', ''password'', ''{"password": "secret"}''). 22023: not valid; 55000: no master key; 55006: shards use it with another kind';
COMMENT ON FUNCTION @extschema@.shard_keychain_rotate() IS
    'encrypts all credentials again with the first of the master keys, in one transaction and while splits run. Returns their number. The other master keys may then be removed from the file. Example: SELECT shard_keychain_rotate(). 55000: a master key is missing; XX001: a credential was changed';
COMMENT ON FUNCTION @extschema@.shard_credentials() IS
    'lists the credentials without their secrets: their kind, the shards that use them, the master key they are encrypted with, who set them last and when. Example: SELECT * FROM shard_credentials()';
COMMENT ON FUNCTION @extschema@.shard_table_drop(text, text) IS
    'removes a table from a keyspace. Its rows stay. Example: SELECT shard_table_drop(''orders''). 55006: an active split works on the keyspace';
COMMENT ON FUNCTION @extschema@.shard_tables(text) IS
    'lists the tables of a keyspace: names as SQL writes them, the plain name of the shard-by column, and the policy: sharded, reference or global. Example: SELECT * FROM shard_tables()';
COMMENT ON FUNCTION @extschema@.shard_misplaced(text, text[], interval) IS
    'rows on another shard than their key is routed to, counted by shard, table and key, with the shard of the route. They are read with the caller''s login on all active shards, or on the named ones, at one moment of routing. Rows that an active split has on two shards are left out. timeout: how long each shard may take, in all. Example: SELECT * FROM shard_misplaced(). 42501: no login, or policies would hide rows from it; 42P01: a shard lacks the table; 40001: routing changed too fast; all other errors as of shard_query_json';
COMMENT ON FUNCTION @extschema@.shard_unassigned(text, text[], interval) IS
    'rows whose key has no route, counted by shard, table and key, rows without a key (NULL) included. Example: SELECT * FROM shard_unassigned(). All other errors as of shard_misplaced';
COMMENT ON FUNCTION @extschema@.shard_reserve_slot(text, text, text, interval, text) IS
    'reserves a slot of a shard of the kind for a logical key, or returns the live reservation that the tenant already has for it, pending or confirmed. The lease begins now. strategy: fill_first (the shard with the least room), spread (the most), consistent (by the hash of the key). Example: SELECT * FROM shard_reserve_slot(''vector'', ''index-7'', ''42''). SM003: no room; DETAIL names what is full and what is draining. SM004: the tenant''s quota is used up; SM005: another tenant has the key; 22023: no such lease or strategy';
COMMENT ON FUNCTION @extschema@.shard_confirm_slot(bigint, text) IS
    'confirms that the resource exists: the slot is occupied until it is freed. With the same resource again it does nothing. Example: SELECT shard_confirm_slot(17, ''collection-7''). SM005: the lease has expired, it was cancelled, or it is confirmed with another resource; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION @extschema@.shard_cancel_slot(bigint) IS
    'cancels a pending reservation: its slot is free. One that has ended stays as it is. Example: SELECT shard_cancel_slot(17). 55000: it is confirmed; 42704: unknown';
COMMENT ON FUNCTION @extschema@.shard_renew_slot(bigint, interval) IS
    'restarts the lease of a pending reservation from now, and returns its end. Example: SELECT shard_renew_slot(17, ''5 min''). SM005: it is not live, or has no lease; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION @extschema@.shard_free_slot(text, text) IS
    'frees the slot of a confirmed key after its resource was deleted. Returns false if the key is not confirmed. Example: SELECT shard_free_slot(''vector'', ''index-7''). 55006: the slot of a tenant that is routed to a server, which cannot be freed here';
COMMENT ON FUNCTION @extschema@.shard_expire_leases() IS
    'expires all reservations whose lease has ended, and returns their number. The worker does it too, see shardmaster.lease_sweep_interval. Example: SELECT shard_expire_leases()';
COMMENT ON FUNCTION @extschema@.shard_capacity(text) IS
    'how full each shard of a kind (NULL: of all kinds) is: slots that exist (minted), free, leased, confirmed, and how many more fit; NULL: unlimited. Example: SELECT * FROM shard_capacity()';
COMMENT ON FUNCTION @extschema@.shard_set_quota(text, text, bigint) IS
    'sets how many slots of a kind a tenant may hold, leased and confirmed; NULL: no limit. A quota below what it holds takes nothing away. Waits for open reservations of the tenant. Example: SELECT shard_set_quota(''42'', ''vector'', 10)';
COMMENT ON FUNCTION @extschema@.shard_tenant_usage(text, timestamptz, timestamptz) IS
    'for each kind, the slots that a tenant (NULL: each tenant) has leased and confirmed, its quota, and the seconds for which it held slots within the interval, from reservation to release. Example: SELECT * FROM shard_tenant_usage(''42'')';
COMMENT ON FUNCTION @extschema@.shard_place_tenant(text, text, text) IS
    'routes a new tenant to a server with room, by the strategy (see shard_reserve_slot), with a slot if the server has a capacity. Returns the shard''s key; for a tenant with a route, its shard. Example: SELECT shard_place_tenant(''42'', ''spread''). SM003: no room';
COMMENT ON FUNCTION @extschema@.shard_login_drop(text, text) IS
    'removes a login: of one shard, or the one for all others. Only superusers may call it. Example: SELECT shard_login_drop(''analyst''). 42501: not a superuser; 42704: no such login';
COMMENT ON FUNCTION @extschema@.shard_query(text, text, text[], interval, text) IS
    'as shard_query_json, with the columns that the caller declares. With on_error => ''report'' the last column is shard_error jsonb. Example: SELECT * FROM shard_query(''SELECT id, name FROM item'') AS t (id bigint, name text). 42804: a shard returns other columns; all other errors as of shard_query_json';
COMMENT ON FUNCTION @extschema@.shard_reference_tables(text) IS
    'the state of each reference table of a keyspace, or of all, on each shard. state: filling (not complete yet), following, away (does not answer) or failed (somebody must act). lag: the shard has all that was committed on the origin so long ago. error: why it does not follow, with a hint. Example: SELECT * FROM shard_reference_tables()';
COMMENT ON FUNCTION @extschema@.shard_reference_wait(text, interval) IS
    'waits until all active shards have what is now committed on the origins of a keyspace''s reference tables. Example: SELECT shard_reference_wait(). 55000: a shard has failed; 57014: the timeout is over';
COMMENT ON FUNCTION @extschema@.shard_report() IS
    'this master as one HTML page, without scripts and external files: what needs attention, shards and how full they are, keyspaces, splits with their times, rates, lag and how long writers waited, placement, the last events. Of many shards, keyspaces and splits it shows the fullest and the latest, and how many are not shown. Above about a million routes their numbers are estimates. Example: psql -Atc ''SELECT shard_report()'' > report.html';
COMMENT ON FUNCTION @extschema@.shard_route(text, text, text) IS
    'as shard_of, with what a client needs to connect. conninfo: a connection string without user and file paths; NULL: the shard is this database, so stay on the connection you have. routing_version: the keyspace''s current version, to compare with that of an SM001. namespace: the schema of the shard''s tables. Example: SELECT * FROM shard_route(''42'')';
COMMENT ON FUNCTION @extschema@.shard_range_midpoint(text, text, text, text) IS
    'a key that divides the range from lower (NULL: from the first) to before upper (NULL: to the last) in two. by: "keyspace", in the middle of the possible keys, or "rows", in the middle of the rows on its shard (of large tables a sample). Roles below superuser see rows only of tables that a superuser has added (42501). Example: SELECT shard_range_midpoint(''orders'', ''1000'', ''2000''). 55000: there is none; 22023: the range is on two shards, or not a range keyspace';
COMMENT ON FUNCTION @extschema@.shard_schema_diff(text, text, text, text[], interval) IS
    'lists the differences between two shards in a keyspace''s tables and what they need. NULL: that shard does not have it. also: tables besides those of the keyspace. Reads only catalogs, with the caller''s login there. timeout: how long each shard may take, in all. Example: SELECT * FROM shard_schema_diff(''a'', ''b''). 42501: no login; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_snowflake_id() IS
    'a positive identifier that no other machine makes and that grows with time: 41 bits of milliseconds since shardmaster.snowflake_epoch, 10 bits of machine id, 12 bits of sequence. Waits for the next millisecond after 4,096 identifiers of one, and for a clock that was set back by up to 2 s. Example: SELECT shard_snowflake_id(). 55000: the library is not preloaded, no machine id is set, the clock was set back by more, or the epoch has changed';
COMMENT ON FUNCTION @extschema@.shard_snowflake_parts(bigint) IS
    'when an identifier was made, to the millisecond, on which machine, and its number in that millisecond. Example: SELECT * FROM shard_snowflake_parts(shard_snowflake_id()). 22023: it is negative; 22004: it is NULL';
COMMENT ON FUNCTION @extschema@.shard_split_diagnose(bigint) IS
    'all problems of a split, on the master and on both shards, and what would fix each (NULL: it passes). No row: all is well. Reads only. Example: SELECT * FROM shard_split_diagnose(7). 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_to_call(bigint) IS
    'the next call that brings a split to its end. NULL: the split is over, or a worker is doing it. Example: SELECT shard_split_to_call(7). 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_top(text, text, integer, text, interval) IS
    'which tenants to move: the keys with the most rows, bytes or writes of one shard or of all active ones. Estimates from pages chosen at random, up to 64 MB of each shard. by: rows, bytes or writes. rows: within rows_error in 19 of 20 cases, which is 0 if all rows were read. bytes: its part of the tables'' size, with indexes and TOAST. writes: its part of the rows that the server has counted as inserted, updated and deleted, by the rows written last; the order is right, the numbers are approximate. share: percent of its shard. routed_to: the shard of its route, NULL: none. problem: why a shard has not answered; for a named shard that is an error. The shards are asked with the caller''s login (shard_login_set). Example: SELECT * FROM shard_top(by => ''bytes'')';
COMMENT ON FUNCTION @extschema@.shard_set_endpoint(text, text, text, text, text, int, text, text, text, text, text, text, text, boolean) IS
    'changes where a shard is. NULL: unchanged. conninfo: as for psql, without a password. host (or several), port, database, username, options (more keywords, as a connection string): parts of it. client_conninfo: what shard_route returns; by default conninfo without user, file paths and session options. read_conninfo: the same for reads, for example of a standby, while no split moves their key. An empty text removes client_conninfo, read_conninfo, uri, credential_alias or notes; an empty conninfo leads to libpq''s defaults. active: false sets the status "disabled", true restores the one before it. Active splits open new sessions; clients are informed by NOTIFY. If the shard has a key guard, a warning names the call of shard_guard_install(). Connection strings need a superuser (42501). Example: SELECT shard_set_endpoint(''a'', host => ''10.0.0.6''). 22023: not valid, or a shard in this database; 42704: no such shard';
COMMENT ON FUNCTION @extschema@.shard_add_many(text, text) IS
    'adds a shard for each connection string of a list separated by semicolons. Returns their names: the prefix and the first free numbers. Only superusers may call it, as shard_add(). Example: SELECT * FROM shard_add_many(''host=a dbname=app; host=b dbname=app'', ''shard'')';
COMMENT ON FUNCTION @extschema@.shard_set_status(text, text) IS
    'sets a shard''s status. status: "active"; "draining" (serves reads and writes, gets no placement, cannot be a split''s target); "disabled" (shard_of and shard_route refuse it with 55000). Example: SELECT shard_set_status(''a'', ''draining''). 55006: an active split uses the shard, which cannot be disabled';
COMMENT ON FUNCTION @extschema@.shard_set_capacity(text, bigint) IS
    'sets the number of a shard''s slots; NULL: unlimited. Example: SELECT shard_set_capacity(''a'', 1000)';
COMMENT ON FUNCTION @extschema@.shard_topology() IS
    'lists the shards by shard_index. host, port, database: from the connection string, NULL if it leaves them open (a service, several ports); host and port are NULL for a shard that is this database. active: the status is not "disabled", so that keys are routed to it. Example: SELECT * FROM shard_topology()';
COMMENT ON FUNCTION @extschema@.shard_distrust_owner(text, text) IS
    'revokes shard_trust_owner(). Active splits stop at their next step if they would run the role''s code. Example: SELECT shard_distrust_owner(''a'', ''app_owner''). Errors as of shard_trust_owner';
COMMENT ON FUNCTION @extschema@.shard_of(bigint, text, text) IS
    'as shard_of(text, ..), for a key that is a number. Example: SELECT shard_of(42)';
COMMENT ON FUNCTION @extschema@.shard_of(uuid, text, text) IS
    'as shard_of(text, ..), for a key that is a uuid. Example: SELECT shard_of(''7b0e2f9a-3d0c-4f7e-8f5d-2c1b0a9e8d7c''::uuid)';
COMMENT ON FUNCTION @extschema@.shard_route(bigint, text, text) IS
    'as shard_route(text, ..), for a key that is a number. Example: SELECT * FROM shard_route(42)';
COMMENT ON FUNCTION @extschema@.shard_route(uuid, text, text) IS
    'as shard_route(text, ..), for a key that is a uuid. Example: SELECT * FROM shard_route(''7b0e2f9a-3d0c-4f7e-8f5d-2c1b0a9e8d7c''::uuid)';
COMMENT ON PROCEDURE @extschema@.shard_execute_resume(bigint, boolean, interval) IS
    'continues a statement of shard_execute() on the shards where it is not done, failed ones included, after it has found out the outcome where that is unknown. A shard that cannot be asked does not delay others, and is the error at the end; in two phases the call needs all shards. retry: runs it again also where the outcome cannot be known. Example: CALL shard_execute_resume(7). 42501: it belongs to another role; 42704: no such execution; 55000: nobody knows whether a shard has done it; 55006: another session is running it (for the worker, which has it for a moment, the call waits)';
COMMENT ON FUNCTION @extschema@.shard_execute_abandon(bigint, boolean, interval) IS
    'abandons a statement of shard_execute() where it is not done, so that splits no longer wait for it. Undoes nothing. A statement in two phases is ended first, for which each shard may take as long as timeout. force: abandons it also if a shard cannot be told to end its prepared transaction, whose name is in shard_executions(). Example: SELECT shard_execute_abandon(7). 08006: a shard cannot be reached; 42704: no such execution; 55006: another session is running it';
COMMENT ON FUNCTION @extschema@.shard_executions(bigint) IS
    'the progress of statements of shard_execute() on each shard, of one or of all. state: waiting, running, prepared (in two phases, not decided), committing (it is done, or the next resume finds that it is not), done, failed (nothing of it is left, unless it ran without a transaction), unknown, abandoned. rows: how many it changed. gid: the name of its prepared transaction. Example: SELECT * FROM shard_executions()';
COMMENT ON PROCEDURE @extschema@.shard_misplaced_move(text, text[], text, text[], boolean, interval, bigint) IS
    'moves rows that are on another shard than their keys are routed to, to the right shard, with the caller''s login on both: each row is committed there before it is deleted here. tables: only those. fire_triggers: also if triggers of others fire for deleted rows. timeout: how long each step may take. Rows that are already there and the same are only deleted. For the last rows, clients that write to their tables there wait, as a NOTICE reports. run_id: returns its number; the keys of a session that has ended stay held until the same call is made again. Example: CALL shard_misplaced_move(''a'', ''{42}''). 0A000: a table, a trigger or a foreign key because of which a row might not arrive; 42501: no login; 55000: a key whose rows are on the right shard, or which has no route; 55006: a split, a statement or another run uses the keys; SM008: a row with the same primary key is there with other content';
COMMENT ON FUNCTION @extschema@.shard_misplaced_abandon(bigint, boolean, interval) IS
    'abandons a call of shard_misplaced_move() or shard_misplaced_delete() whose session has ended. Its keys are free again, and the next call treats what may be left on both shards as rows that were never moved. Undoes nothing; ends its sessions on shards, with the caller''s login. force: without asking the shards. Example: SELECT shard_misplaced_abandon(3). 42704: no such run; 55000: it has ended and left nothing; 55006: another session is working on it';
COMMENT ON FUNCTION @extschema@.shard_misplaced_runs(bigint) IS
    'calls of shard_misplaced_move() and shard_misplaced_delete(), one of them or all, a row for each table. state: running (it holds its keys), done, failed, interrupted (another call has taken its place) or abandoned. moved: rows, without those of a batch that was interrupted before it was counted. Example: SELECT * FROM shard_misplaced_runs()';
COMMENT ON FUNCTION @extschema@.shard_split_keys(bigint) IS
    'the keys, buckets or ranges of a split, one a row. Example: SELECT * FROM shard_split_keys(7). 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_tables(bigint) IS
    'the tables of a split with their progress; bytes as they were sent. Example: SELECT * FROM shard_split_tables(7)';
COMMENT ON FUNCTION @extschema@.shard_split_events(bigint) IS
    'the events of a split, in order: requests, changes of phase, failures. Example: SELECT * FROM shard_split_events(7)';
COMMENT ON FUNCTION @extschema@.shard_split_plan_range(text, text, text, text, text, text) IS
    'plans a split that moves the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace. Ranges across a bound are divided there, which is a routing version of its own. Example: SELECT shard_split_plan_range(''a'', ''b'', ''1000'', ''2000'', ''orders''). Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_plan_all(text, text, text, text) IS
    'plans a split that moves everything of the keyspace that is now routed to the source: a merge, or the move of a whole shard. Example: SELECT shard_split_plan_all(''a'', ''b''). Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_switch_reads(bigint, boolean) IS
    'switches reads of a split''s keys to its target before the cutover (phases tailing and cutover_pending), or back: shard_route and its like with the intent read. There they see the source''s rows as they were so long ago as lag in shard_split_metrics() says. They are switched back before rows are copied again, and by a rollback. Example: SELECT shard_split_switch_reads(7). 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_lifecycle() IS
    'the life of a split: each allowed change of phase with its cause (call is NULL), then what each call does in each phase. to_phase: what is requested from then on; NULL: that stays, or the call is refused, as condition says. Example: SELECT * FROM shard_split_lifecycle()';
COMMENT ON PROCEDURE @extschema@.shard_guard_install(text, text) IS
    'makes a shard refuse rows of keys that it never had (SM001): triggers on its tables of the keyspace look the key up in a list of the keys routed there. Every assignment and cutover adds to that list before a route leads there. Existing rows stay, and can be changed and deleted. Call it again after an interruption, a restore of the shard, or a new table. Example: CALL shard_guard_install(''a'', ''default''). 0A000: a table that does not exist, that others inherit from, that another shard has as well, or whose keys cannot be looked up; 55000: a shard of another master, a keyspace without tables, or another call is removing it';
COMMENT ON PROCEDURE @extschema@.shard_guard_remove(text, text, boolean) IS
    'removes what shard_guard_install() has made. force: the shard is not asked, also not by assignments. What is left of the guard there then refuses new keys until shard_cleanup() removes it; shard_guards() shows it as left. Example: CALL shard_guard_remove(''a'', ''default''). 42704: there is none; 55000: another call is installing it';
COMMENT ON FUNCTION @extschema@.shard_trusted_owners() IS
    'the roles of shards whose code the mover may run, by shard_trust_owner(). Example: SELECT * FROM shard_trusted_owners()';
COMMENT ON FUNCTION @extschema@.shard_split_verification(bigint) IS
    'the result of shard_split_verify(): a row for each table. status: pending, running, passed, differs or failed (what says why). bytes: of the rows as text. verified_at: when the last row of the table was compared. Example: SELECT * FROM shard_split_verification(7). 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_query_page(text, text[], int, jsonb, text, text[], interval) IS
    'returns the next rows of all shards in one order, as JSON. order_by: columns of the statement, each with ASC or DESC, a text with COLLATE "C" before it. after: the last row of the page before. Rows with NULL in one of these columns are on no page. page_size: 1 to 10,000 rows; each shard sends at most so many. Example: SELECT * FROM shard_query_page(''SELECT id, name FROM item'', ''{id}''). 22023: the order does not distinguish two rows on two pages; 42804: a column that shards may sort differently; all other errors as of shard_query_json';
COMMENT ON FUNCTION @extschema@.shard_assign_keys(bigint[], text, text, boolean, text) IS
'as shard_assign_many, for an array of bigint, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(id), ''a'') FROM tenants';
COMMENT ON FUNCTION @extschema@.shard_assign_keys(text[], text, text, boolean, text) IS
'as shard_assign_many, for an array of text, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(name), ''a'') FROM tenants';
COMMENT ON FUNCTION @extschema@.shard_assign_keys(uuid[], text, text, boolean, text) IS
'as shard_assign_many, for an array of uuid, for example of array_agg(). For a quoted literal, which has no type, use shard_assign_many. Example: SELECT shard_assign_keys(array_agg(id), ''a'') FROM tenants';
COMMENT ON FUNCTION shardmaster.split_settles(bigint) IS 'when a split finishes automatically; NULL: only when it is requested';
COMMENT ON TABLE shardmaster.keychain IS 'credentials of shards by alias, encrypted with a master key that is outside of the database; see shard_credentials()';
COMMENT ON COLUMN shardmaster.split_cutover.attempt IS 'failed attempts';
COMMENT ON TABLE shardmaster.split_cutover IS 'requested cutovers and rehearsals; a row is deleted when its cutover is decided or aborted';
COMMENT ON COLUMN shardmaster.split_difference.to_repair IS 'shard_split_repair() was called: the row is copied again';
COMMENT ON TABLE shardmaster.split_settle IS 'splits that finish automatically; a row is deleted when the finish is requested, or the split is reversed or rolled back';
COMMENT ON COLUMN shardmaster.standing_guard.stage IS 'begun; made: the shard has an empty list; listing: all earlier routes are committed, and are being listed; fitting: the list is complete, triggers are being created; stands; going: it is being removed; left: removed by force, without the shard, which may still have it';
COMMENT ON FUNCTION shardmaster.routine_levels() IS 'which level of shard_grant() includes which routine; a higher level includes the lower ones';
COMMENT ON COLUMN shardmaster.shard.status_active IS 'of a disabled shard: the status that it had before, which shard_set_endpoint(active => true) restores';
COMMENT ON COLUMN shardmaster.shard.conninfo IS 'libpq connection string of the mover; NULL: this database';
COMMENT ON COLUMN shardmaster.shard.added_by IS 'the role that added it: splits check again whether it may have a schema of this database as a shard';
COMMENT ON COLUMN shardmaster.shard.auth_kind IS 'how the mover proves to the shard who it is; libpq: by the connection string and what the server''s operating-system user has; most others by a credential of the keychain';
COMMENT ON COLUMN shardmaster.shard.credential_alias IS 'the name of its credential';
COMMENT ON COLUMN shardmaster.shard.endpoint_at IS 'when its address was last set: active splits open new sessions';
COMMENT ON COLUMN shardmaster.keychain.sealed IS 'a byte for the format, 8 that identify the master key, a nonce of 24, ciphertext; alias and auth_kind are authenticated with it';
COMMENT ON COLUMN shardmaster.keychain.set_by IS 'the role that set it last, for people: nothing depends on it';
COMMENT ON TABLE shardmaster.database_identity IS 'the database and server that a connection string of the mover leads to, as a worker last read it there';
COMMENT ON COLUMN shardmaster.database_identity.identity IS 'system identifier of the server and oid of the database: if they differ, it is another database; copies of a disk share them';
COMMENT ON COLUMN shardmaster.keyspace.key_type IS 'type of the key, by name; NULL: text, until a shard_table_add of the default keyspace sets it';
COMMENT ON COLUMN shardmaster.table_policy.policy IS 'sharded: each row on the shard of its key; reference: all rows on every shard; global: on one server, which only the application knows';
COMMENT ON COLUMN shardmaster.table_policy.named_by IS 'the role that added it: if its schema is one of this database, splits check again whether the role may use it';
COMMENT ON TABLE shardmaster.reference_set IS 'reference tables that are kept together; a row is deleted when no shard has anything of it';
COMMENT ON COLUMN shardmaster.reference_set.token IS 'identifies it on shards: the hash of its secret';
COMMENT ON COLUMN shardmaster.reference_set.secret IS 'identifies its worker to guards; no shard stores it';
COMMENT ON TABLE shardmaster.reference_table IS 'the number by which shards know a reference table';
COMMENT ON COLUMN shardmaster.reference_table.dropped IS 'removed from the keyspace; shards may still have something of it';
COMMENT ON COLUMN shardmaster.reference_table.waits_for IS 'why a shard still has something of a table that was removed';
COMMENT ON COLUMN shardmaster.reference_copy.filled IS 'tables, by their numbers, that have been there completely';
COMMENT ON COLUMN shardmaster.routing_version.changed_by IS 'the role of the session, for people: nothing depends on it';
COMMENT ON COLUMN shardmaster.routing_entry.key IS 'the name of the entry: the key itself, the number of the bucket, or the range as [lower,upper)';
COMMENT ON COLUMN shardmaster.routing_entry.upper IS 'first key after a range; NULL: there is none';
COMMENT ON COLUMN shardmaster.routing_entry.unassigned IS 'the entry ended because its route was removed, not because others took its place';
COMMENT ON COLUMN shardmaster.split_plan.on_ddl IS 'what the split does when a moving table changes on the source: wait until the target is changed as well, or apply the change there ("replay" in the catalog)';
COMMENT ON COLUMN shardmaster.split_plan.redirect_since IS 'since when the source of a finished split redirects clients of the keys that left; NULL: it no longer does';
COMMENT ON COLUMN shardmaster.split_plan.redirect_ending IS 'a worker is to end a part of the redirect';
COMMENT ON COLUMN shardmaster.split_plan.cutover_asked_at IS 'when an operator last requested the cutover, or a rehearsal: an old request is void for a worker that has not seen it';
COMMENT ON COLUMN shardmaster.split_plan.fenced_since IS 'since when a cutover keeps writers of what moves waiting, or a shard that lost the state of the split has not got it back; NULL: neither';
COMMENT ON COLUMN shardmaster.split_plan.undo_ended_at IS 'since when a split that is being finished cannot be taken back any more, because nothing prevented its end';
COMMENT ON COLUMN shardmaster.split_plan.accept_missing IS 'finish may delete rows that are not proven to be on the target: the operator has allowed it';
COMMENT ON COLUMN shardmaster.split_plan.target_lost IS 'rollback does not ask the target: the operator has declared it lost';
COMMENT ON COLUMN shardmaster.split_plan.source_lost IS 'finish does not ask the source: the operator has declared it lost';
COMMENT ON TABLE shardmaster.split_plan IS 'online splits: the requested state (goal) and the present one (phase)';
COMMENT ON COLUMN shardmaster.split_plan.token IS 'identifies the split on shards: the hash of its secret';
COMMENT ON COLUMN shardmaster.split_plan.secret IS 'identifies the mover to the capture triggers; no shard stores it';
COMMENT ON COLUMN shardmaster.split_settle.age IS 'how long after the cutover; NULL: at any age';
COMMENT ON COLUMN shardmaster.split_settle.is_full IS 'the queue has reached that size';
COMMENT ON COLUMN shardmaster.redirect.ending IS 'assigned to the shard that it had left: a worker informs the shard';
COMMENT ON COLUMN shardmaster.redirect.asked_of IS 'assigned to this shard, which may be the one that it had left, at another address: a worker asks both';
COMMENT ON TABLE shardmaster.split_verification IS 'how far the comparison of each table of a split is, and its result';
COMMENT ON COLUMN shardmaster.split_verification."position" IS 'where the comparison continues: the side that is read, its completed partitions, the next block';
COMMENT ON COLUMN shardmaster.split_verification.differed IS 'rows that earlier comparisons found to differ; 0: one has passed since';
COMMENT ON COLUMN shardmaster.split_verification.request IS 'counts the requests of the comparison: results of earlier ones do not count any more';
COMMENT ON COLUMN shardmaster.split_event.who IS 'the role of the session, for people: nothing depends on it';
COMMENT ON VIEW shardmaster.shard_endpoint IS 'where each shard is and how the mover connects, as set by shard_add() and shard_set_endpoint(); without secrets. No host: this database, or what a service names. options: more keywords of libpq';
COMMENT ON FUNCTION shardmaster.execution_take(bigint, boolean, interval) IS 'internal: takes an execution for the session, and finds out its state';
COMMENT ON COLUMN shardmaster.execution.wave IS 'how many shards run it in parallel';
COMMENT ON COLUMN shardmaster.execution.two_phase IS 'all shards do it, or none: a shard in committing means that it was decided, none that it was not';
COMMENT ON COLUMN shardmaster.execution.master IS 'the master that runs it: a copy of its catalog on another server is another master, and leaves the shards to it';
COMMENT ON COLUMN shardmaster.execution.timeline IS 'the timeline of the master when it last recorded what was done: on another one its last records may be lost';
COMMENT ON COLUMN shardmaster.execution.look_at IS 'when its shards are asked next, once it is done in two phases, whether one that failed over has it prepared again; NULL: it is not done, or they are no longer asked';
COMMENT ON COLUMN shardmaster.execution.started_by IS 'the role that may resume it, or a role with its rights';
COMMENT ON COLUMN shardmaster.execution_shard.xid IS 'its transaction there, as long as system_identifier and timeline are the same; no other transaction has the number, because what the shard had written up to flushed survives a crash';
COMMENT ON COLUMN shardmaster.execution_shard.gid IS 'the name of its prepared transaction, recorded before it is prepared; no two attempts have the same';
COMMENT ON SERVER shardmaster IS 'all shards of this master that are active when it is queried';
COMMENT ON FUNCTION shardmaster.fdw_handler() IS 'internal: the callbacks of the foreign data wrapper';
COMMENT ON TABLE shardmaster.shard_login IS 'the logins with which shard_query() connects roles to the shards: never as the mover; see shard_logins()';
COMMENT ON COLUMN shardmaster.shard_login.role IS 'the role that asks: the role itself, or one whose rights it has';
COMMENT ON COLUMN shardmaster.shard_login.credential_alias IS 'its credential; NULL: by what the server''s operating-system user has';
COMMENT ON COLUMN shardmaster.lookup.table_name IS 'its name in the table policy of the other keyspace; NULL: no table was added yet';
COMMENT ON COLUMN shardmaster.lookup.token IS 'identifies on shards what captures changes of the column there';
COMMENT ON COLUMN shardmaster.lookup.swept IS 'the epoch up to which all pairs were checked again since';
COMMENT ON COLUMN shardmaster.misplaced_key.routed_to IS 'the shard of its route; NULL: it has no route';
COMMENT ON TABLE shardmaster.misplaced_session IS 'sessions on shards that work for it: they are ended before another one continues';
COMMENT ON TABLE shardmaster.misplaced_table IS 'how many rows of each table it has moved, and how many it has only deleted';
COMMENT ON TABLE shardmaster.misplaced_doubt IS 'rows that may be on the right shard and still on the wrong one, and the transaction that copied them';
COMMENT ON COLUMN shardmaster.misplaced_doubt.left_by IS 'the transaction that deletes them: its number, server, timeline and how far the log there was written, so that a crash gives the number to no other transaction; NULL: it could not be asked';
COMMENT ON COLUMN shardmaster.shard_slots.returned_no IS 'the slot_no of a free slot that was returned';
COMMENT ON TABLE shardmaster.shard_reservation IS 'all reservations, past ones too: the audit trail of slots';
COMMENT ON TABLE shardmaster.shard_room IS 'free slots of each shard, without the changes in shard_room_change';
COMMENT ON COLUMN shardmaster.shard_room.room IS 'capacity, 2^62 if it is unlimited, minus occupied slots';
COMMENT ON TABLE shardmaster.shard_room_change IS 'changes to be added to shard_room';
COMMENT ON TABLE shardmaster.shard_quota IS 'the quota of a tenant for slots of a kind';
COMMENT ON COLUMN shardmaster.shard_quota.held IS 'slots that it holds, without the changes in shard_quota_change';
COMMENT ON TABLE shardmaster.shard_quota_change IS 'changes to be added to shard_quota';
COMMENT ON FUNCTION shardmaster.split_rests(bigint) IS 'what a completed split waits for; NULL: it is not completed, or is working';
COMMENT ON FUNCTION shardmaster.waiting_words(text) IS 'what a split waits for, to follow the words "waiting for"';
COMMENT ON FUNCTION shardmaster.split_figures(bigint) IS 'internal: what shard_split_metrics asks the sources of active splits; problem: why there is no answer, or what is wrong with it';
COMMENT ON FUNCTION shardmaster.split_account(bigint, timestamptz) IS 'internal: the summary of shard_split_run';
COMMENT ON FUNCTION shardmaster.split_next_call(bigint, text, boolean) IS 'internal: the call that shard_split_run makes next; '''' to wait, NULL at the end';
COMMENT ON VIEW @extschema@.shard_splits IS 'one row for each split that is neither finished nor rolled back, as in shard_splits(), for roles that may call that';
COMMENT ON COLUMN shardmaster.standing_guard.tables IS 'the tables that have triggers or will get them, by their names in the keyspace';
COMMENT ON COLUMN shardmaster.standing_guard.apart IS 'connection strings that led to another database than the guarded one; an empty one: this database';
COMMENT ON FUNCTION shardmaster.guard_begin(text, text, boolean, boolean) IS 'internal: records that shard_guard_install() or shard_guard_remove() has begun';
-- What a database is like before it is sharded.

CREATE TYPE shardmaster.survey_row AS (
    table_name text, rows bigint, bytes bigint, tenant_by text, path text[], finding text, call text);
COMMENT ON TYPE shardmaster.survey_row IS 'the columns of shard_survey()';

CREATE TYPE shardmaster.adoption_step AS (
    kind text, table_name text, column_name text, through text[], value_column text, also text[], policy text, key_type text, call text,
    undo text, why text);
COMMENT ON TYPE shardmaster.adoption_step IS 'a step of shard_adopt_database()';

CREATE FUNCTION @extschema@."shard_survey"(
    "shard" TEXT,
    "tenant" TEXT DEFAULT NULL,
    "namespaces" TEXT[] DEFAULT NULL,
    "exact" bool DEFAULT false,
    "timeout" interval DEFAULT '30 s'
) RETURNS SETOF shardmaster.survey_row
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_survey_wrapper';
CREATE FUNCTION @extschema@."shard_survey_sql"(
    "shard" TEXT,
    "tenant" TEXT,
    "target" TEXT DEFAULT NULL,
    "namespaces" TEXT[] DEFAULT NULL,
    "keyspace" TEXT DEFAULT 'default',
    "accept" TEXT[] DEFAULT NULL,
    "timeout" interval DEFAULT '30 s'
) RETURNS TEXT
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_survey_sql_wrapper';
CREATE FUNCTION @extschema@."shard_survey_report"(
    "shard" TEXT,
    "tenant" TEXT,
    "target" TEXT DEFAULT NULL,
    "namespaces" TEXT[] DEFAULT NULL,
    "keyspace" TEXT DEFAULT 'default',
    "accept" TEXT[] DEFAULT NULL,
    "timeout" interval DEFAULT '30 s'
) RETURNS TEXT
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_survey_report_wrapper';
CREATE FUNCTION shardmaster."adoption_steps"(
    "shard" TEXT,
    "tenant" TEXT,
    "target" TEXT,
    "namespaces" TEXT[],
    "keyspace" TEXT,
    "accept" TEXT[],
    "timeout" interval
) RETURNS SETOF shardmaster.adoption_step
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'adoption_steps_wrapper';
COMMENT ON FUNCTION @extschema@.shard_survey(text, text, text[], boolean, interval) IS
'reads catalogs, statistics and some rows of a live database, and says how each table''s tenant is found, what is in the way of sharding it, and the call or statement for that. Changes nothing and takes no lock beyond that of a SELECT. Without tenant: proposes columns. tenant: the column that holds the tenant. namespaces: schemas; NULL: all of the application. exact: counts all rows instead of samples. timeout: for all of it. tenant_by: column, through (foreign keys, see path), reference, global or unclear. A table''s first row has rows, bytes (with indexes and TOAST, of all partitions) and tenant_by; its further rows and those of the database, at the end, have findings. Calls of shard_ functions run on the master, other statements on the shard. Example: SELECT * FROM shard_survey(''a'', ''tenant_id''). 42703: no table has the column; 42809: only views have it; 42804: its types differ, or hold no key; 3F000: no such schema; 42P01: no tables; 42501: the mover may read none; 42704: no such shard; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_survey_sql(text, text, text, text[], text, text[], interval) IS
'returns the steps of shard_adopt_database() as a script for psql, in their order, for who wants to read before running. In front are the findings that a person has to read; under each step the call that takes it back. Reads the database as shard_survey() does, and changes nothing. target: the shard that gets the tables as well. accept: tables whose tenant is unclear, which are to get it as proposed. Example: SELECT shard_survey_sql(''a'', ''tenant_id'', ''b''). 22023: accept names no such table; errors of shard_survey()';
COMMENT ON FUNCTION @extschema@.shard_survey_report(text, text, text, text[], text, text[], interval) IS
'returns the survey of a database as one page of HTML: a picture of the tables and of their paths to the tenant, the findings by what they cost, and the steps of shard_adopt_database(). The page loads nothing. Arguments as of shard_survey_sql(). Example: \pset format unaligned, \pset tuples_only, \o survey.html, then SELECT shard_survey_report(''a'', ''tenant_id'')';
COMMENT ON FUNCTION shardmaster.adoption_steps(text, text, text, text[], text, text[], interval) IS
'internal: the decisions and steps of shard_adopt_database()';

-- Long work on the shards, which one worker does, a piece at a time.
CREATE TABLE shardmaster.job (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('derive', 'derive_drop', 'identify')),
    keyspace    text NOT NULL,
    object      text NOT NULL,
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'failed', 'done')),
    shard_key   text,
    step        text NOT NULL DEFAULT 'begin',
    position    text NOT NULL DEFAULT '',
    done        bigint NOT NULL DEFAULT 0,
    total       bigint,
    waiting_for text,
    error_code    text,
    error_message text,
    error_hint    text,
    started_by  text NOT NULL DEFAULT session_user,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz
);
CREATE INDEX job_open ON shardmaster.job (id) WHERE state IN ('running', 'paused', 'failed');
COMMENT ON TABLE shardmaster.job IS 'long work on the shards; see shard_jobs()';
COMMENT ON COLUMN shardmaster.job.kind IS 'what is done: derive fills a derived column, derive_drop removes it, identify gives the table a primary key';
COMMENT ON COLUMN shardmaster.job.keyspace IS 'the keyspace of the table';
COMMENT ON COLUMN shardmaster.job.object IS 'the table that it is done to';
COMMENT ON COLUMN shardmaster.job.state IS 'running: the worker goes on; paused: an operator holds it back; failed: it needs an operator; done';
COMMENT ON COLUMN shardmaster.job.shard_key IS 'the shard that it is at';
COMMENT ON COLUMN shardmaster.job.step IS 'what it does on that shard';
COMMENT ON COLUMN shardmaster.job.position IS 'how far that step is, for the worker';
COMMENT ON COLUMN shardmaster.job.done IS 'how many blocks of the table that step has passed';
COMMENT ON COLUMN shardmaster.job.total IS 'of how many';

-- Columns that are filled from the table that a foreign key leads to.
CREATE TABLE shardmaster.derived_column (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    keyspace     text NOT NULL REFERENCES shardmaster.keyspace (name) ON UPDATE CASCADE ON DELETE CASCADE,
    table_name   text NOT NULL,
    column_name  text NOT NULL,
    through      text[] NOT NULL,
    value_column text,
    was_there    boolean NOT NULL DEFAULT false,
    UNIQUE (keyspace, table_name)
);
COMMENT ON TABLE shardmaster.derived_column IS 'columns that are filled from the table that a foreign key leads to; see shard_table_derive()';
COMMENT ON COLUMN shardmaster.derived_column.through IS 'the columns of the foreign key';
COMMENT ON COLUMN shardmaster.derived_column.value_column IS 'the column of the other table with the value';
COMMENT ON COLUMN shardmaster.derived_column.was_there IS 'whether the table had the column before, so that it stays';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.job', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.job_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.derived_column', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.derived_column_id_seq', '');

CREATE TYPE shardmaster.jobs_row AS (
    job_id bigint, kind text, object text, keyspace text, state text, shard text, step text, percent numeric,
    waiting_for text, error text, hint text, started_by text, started_at timestamptz, ended_at timestamptz);
COMMENT ON TYPE shardmaster.jobs_row IS 'the columns of shard_jobs()';

CREATE FUNCTION @extschema@.shard_jobs() RETURNS SETOF shardmaster.jobs_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT j.id, j.kind, j.object, j.keyspace, j.state, j.shard_key, j.step,
           CASE WHEN j.step = 'rows' AND j.total > 0 THEN round(least(100.0 * j.done / j.total, 100), 1) END,
           j.waiting_for, j.error_message, j.error_hint, j.started_by, j.started_at, j.ended_at
      FROM shardmaster.job j ORDER BY j.id
$$;
COMMENT ON FUNCTION @extschema@.shard_jobs() IS
    'long work on the shards: one row a job, the oldest first. state: running, paused, failed or done. shard, step: where it is. percent: of the table, while its rows are filled. Example: SELECT * FROM shard_jobs()';

CREATE FUNCTION @extschema@."shard_table_derive"(
    "table_name" TEXT,
    "column_name" TEXT,
    "through" TEXT[],
    "value_column" TEXT DEFAULT NULL,
    "keyspace" TEXT DEFAULT 'default',
    "timeout" interval DEFAULT '30 s'
) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_table_derive_wrapper';
CREATE FUNCTION @extschema@."shard_table_derive_drop"(
    "table_name" TEXT,
    "keyspace" TEXT DEFAULT 'default',
    "timeout" interval DEFAULT '30 s'
) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_table_derive_drop_wrapper';
CREATE FUNCTION @extschema@."shard_table_identify"(
    "table_name" TEXT,
    "keyspace" TEXT DEFAULT 'default',
    "timeout" interval DEFAULT '30 s'
) RETURNS bigint
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_table_identify_wrapper';
CREATE FUNCTION shardmaster."job_line"(
    "job_id" bigint
) RETURNS TEXT
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'job_line_wrapper';
CREATE FUNCTION @extschema@."shard_job_pause"(
    "job_id" bigint
) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_job_pause_wrapper';
CREATE FUNCTION @extschema@."shard_job_retry"(
    "job_id" bigint
) RETURNS void
VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'shard_job_retry_wrapper';
COMMENT ON FUNCTION @extschema@.shard_table_derive(text, text, text[], text, text, interval) IS
'gives a table a column with the value of the row that a foreign key leads to, for a table that reaches its tenant only through another one. Adds the column, if it is not there, and triggers that fill it; the application does not need to know of it. A job fills the rows that are there, then makes the column refuse NULL where no row can lack a value, and builds an index. Returns the number of the job; shard_jobs() shows it. through: the columns of the foreign key. value_column: the other table''s column; NULL: the same name. timeout: for the first look at the shards. Then shard_table_add() adds the table to the keyspace. Example: SELECT shard_table_derive(''lines'', ''tenant_id'', ''{order_id}''). 0A000: the table cannot have it; 42501: a right is missing; 42704: no such table; 42703: the other table lacks the column; 42710: it is derived in another way; 55000: a job of the table has not ended; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_table_derive_drop(text, text, interval) IS
'takes shard_table_derive() back: removes the triggers, and the column unless the table had it before. Returns the number of the job that does it. timeout: for the first look at the shards. Example: SELECT shard_table_derive_drop(''lines''). 42704: the table has no derived column; 55006: it is sharded by that column, or the column fills that of another table; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION @extschema@.shard_table_identify(text, text, interval) IS
'gives a table without a primary key one, while clients write: over the columns of a unique index that refuse NULL, else over a new column row_id (uuid, with a default), together with the columns by which the table is partitioned. A job does it on each shard: it fills the rows that are there, builds the index beside writers, and makes it the key under a short lock. Returns the number of the job; shard_jobs() shows it. timeout: for the first look at the shards. Dropping the constraint and the column takes it back. Example: SELECT shard_table_identify(''events''). 0A000: the table cannot have one; 42501: a right is missing; 42704: no such table; 42710: it has one; 55000: a job of the table has not ended; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION shardmaster.job_line(bigint) IS
'internal: the progress of a job, for shard_job_wait(); NULL: it is done';
COMMENT ON FUNCTION @extschema@.shard_job_pause(bigint) IS
'holds a job back after what it is doing, until shard_job_retry(). Example: SELECT shard_job_pause(3). 42704: no such job, or it has ended';
COMMENT ON FUNCTION @extschema@.shard_job_retry(bigint) IS
'lets a job go on that has failed or is paused. Example: SELECT shard_job_retry(3). 42704: no such job, or it has ended';

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

-- The job of a step: the one that an earlier call has begun, or a new one.
CREATE FUNCTION shardmaster.adoption_job(step shardmaster.adoption_step, keyspace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known record;
BEGIN
    SELECT j.id, j.state INTO known FROM shardmaster.job j
     WHERE j.keyspace = $2 AND j.object = step.table_name AND j.kind = step.kind AND j.state <> 'done';
    -- One that somebody has paused stays so, and the wait for it says so.
    IF known.state = 'failed' THEN
        PERFORM shardmaster.job_retry(known.id);
    END IF;
    IF known.id IS NOT NULL THEN
        RETURN known.id;
    END IF;
    IF step.kind = 'derive' THEN
        RETURN shardmaster.table_derive(step.table_name, step.column_name, step.through, step.value_column, keyspace, '30 s'::interval);
    END IF;
    RETURN shardmaster.table_identify(step.table_name, keyspace, '30 s'::interval);
END $$;
COMMENT ON FUNCTION shardmaster.adoption_job(shardmaster.adoption_step, text) IS 'internal: starts the job of a step of shard_adopt_database()';

-- The jobs that have not ended, of a keyspace's derived columns: a new shard gets these, too.
CREATE FUNCTION shardmaster.open_jobs(keyspace text) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(j.id ORDER BY j.id), '{}') FROM shardmaster.job j WHERE j.keyspace = $1 AND j.state <> 'done'
$$;
COMMENT ON FUNCTION shardmaster.open_jobs(text) IS 'internal: the jobs of a keyspace that have not ended';

-- A procedure: CREATE INDEX CONCURRENTLY waits for every older snapshot of its database, and a function would hold one. No SET
-- clause, which would forbid COMMIT: every name is qualified instead, types as well.
CREATE PROCEDURE shardmaster.job_wait(job_id bigint, timeout interval)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    line  pg_catalog.text;
    shown pg_catalog.text := '';
    until pg_catalog.timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) timeout;
    next  pg_catalog.timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) '3 s'::pg_catalog.interval;
BEGIN
    IF until IS NULL THEN
        RAISE EXCEPTION 'argument "timeout" must not be NULL' USING ERRCODE = '22004', HINT = 'Leave it out for an hour.';
    END IF;
    LOOP
        line := shardmaster.job_line(job_id);
        EXIT WHEN line IS NULL;
        IF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) until THEN
            RAISE EXCEPTION '% is not done in time', line
                USING ERRCODE = '57014', HINT = 'It goes on. The same call waits again.';
        END IF;
        IF line OPERATOR(pg_catalog.<>) shown AND pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>=) next THEN
            RAISE INFO '%', line;
            shown := line;
            next := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) '1 s'::pg_catalog.interval;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(0.05::pg_catalog.float8);
    END LOOP;
    COMMIT;
END $$;
COMMENT ON PROCEDURE shardmaster.job_wait(bigint, interval) IS 'internal: shard_job_wait()';

CREATE PROCEDURE @extschema@.shard_job_wait(job_id bigint, timeout interval DEFAULT '1 h')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    CALL shardmaster.job_wait(job_id, timeout);
END $$;
COMMENT ON PROCEDURE @extschema@.shard_job_wait(bigint, interval) IS
    'waits until a job is done, with a line a second. Raises the error of a job that fails. Example: CALL shard_job_wait(3). 42704: no such job; 55000: it is paused; 57014: not within the timeout; 22004: timeout is NULL; 25001: in a transaction block';

-- What a check of a split of one tenant says. The plan is rolled back.
CREATE FUNCTION shardmaster.check_of_a_tenant(shard text, target text, keyspace text, OUT key text, OUT findings text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    SELECT e.key INTO key FROM shardmaster.routing_entry e
     WHERE e.keyspace = $3 AND e.write_shard = $1 AND e.valid_to IS NULL AND NOT e.unassigned AND e.status = 'active'
     ORDER BY e.key LIMIT 1;
    IF key IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        SELECT coalesce(array_agg(format('%s: %s%s', c.check_name, c.detail, ' (' || c.hint || ')') ORDER BY c.check_name, c.detail), '{}')
          INTO findings
          FROM shardmaster.split_check(shardmaster.split_plan(shard, target, ARRAY[key], NULL::text, keyspace), false) c WHERE NOT c.ok;
        RAISE EXCEPTION USING ERRCODE = 'ZZ000';
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
    END;
END $$;
COMMENT ON FUNCTION shardmaster.check_of_a_tenant(text, text, text) IS 'internal: what the check of a split of one tenant finds';

CREATE PROCEDURE shardmaster.adoption_take(step shardmaster.adoption_step, shard text, target text, keyspace text, timeout interval)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    found pg_catalog.record;
    job   pg_catalog.int8;
BEGIN
    IF step.kind OPERATOR(pg_catalog.=) ANY ('{derive,identify}'::pg_catalog.text[]) THEN
        CALL shardmaster.job_wait(shardmaster.adoption_job(step, keyspace), timeout);
    ELSIF step.kind OPERATOR(pg_catalog.=) 'table' THEN
        PERFORM shardmaster.table_add(step.table_name, step.column_name, keyspace, step.key_type::pg_catalog.regtype, step.policy,
                                      CASE WHEN step.policy OPERATOR(pg_catalog.=) 'reference' THEN shard END);
    ELSIF step.kind OPERATOR(pg_catalog.=) 'sequences' THEN
        PERFORM s.sequence FROM shardmaster.sequences_spread(keyspace, 1099511627776::pg_catalog.int8, 9007199254740992::pg_catalog.int8,
                                                             false, timeout) s;
    ELSIF step.kind OPERATOR(pg_catalog.=) 'keys' THEN
        FOR found IN SELECT f.keys, f.example, f.problem FROM shardmaster.assign_found(keyspace, NULL::pg_catalog.text[], timeout, 'its rows were found there'::pg_catalog.text) f
                      WHERE f.problem IS NOT NULL LOOP
            RAISE INFO 'decide: % keys, for example %: %', found.keys, found.example, found.problem;
        END LOOP;
    ELSIF step.kind OPERATOR(pg_catalog.=) 'schema' THEN
        FOR found IN SELECT c.kind, c.object FROM shardmaster.schema_copy(shard, target, keyspace, step.also, true, true, false, timeout) c
                      WHERE c.statement IS NULL LOOP
            RAISE INFO 'decide: % % is not created', found.kind, found.object;
        END LOOP;
        COMMIT;
        FOREACH job IN ARRAY shardmaster.open_jobs(keyspace) LOOP
            CALL shardmaster.job_wait(job, timeout);
        END LOOP;
    ELSIF step.kind OPERATOR(pg_catalog.=) 'references' THEN
        PERFORM shardmaster.reference_wait(keyspace, timeout);
    END IF;
    COMMIT;
END $$;
COMMENT ON PROCEDURE shardmaster.adoption_take(shardmaster.adoption_step, text, text, text, interval) IS 'internal: takes a step of shard_adopt_database()';

CREATE PROCEDURE @extschema@.shard_adopt_database(
    shard text, tenant text, target text DEFAULT NULL, namespaces text[] DEFAULT NULL, keyspace text DEFAULT 'default',
    accept text[] DEFAULT NULL, dry_run boolean DEFAULT true, timeout interval DEFAULT '10 min')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    all_steps shardmaster.adoption_step[] := ARRAY(
        SELECT s FROM shardmaster.adoption_steps(shard, tenant, target, namespaces, keyspace, accept, timeout) s);
    step   shardmaster.adoption_step;
    steps  pg_catalog.int8 := 0;
    number pg_catalog.int8 := 0;
    checked pg_catalog.record;
BEGIN
    COMMIT;
    FOREACH step IN ARRAY all_steps LOOP
        IF step.kind OPERATOR(pg_catalog.=) 'decide' THEN
            RAISE INFO 'decide: %', pg_catalog.concat_ws(': ', step.table_name, step.why, step.call);
        ELSE
            steps := steps OPERATOR(pg_catalog.+) 1::pg_catalog.int8;
        END IF;
    END LOOP;
    FOREACH step IN ARRAY all_steps LOOP
        CONTINUE WHEN step.kind OPERATOR(pg_catalog.=) 'decide';
        number := number OPERATOR(pg_catalog.+) 1::pg_catalog.int8;
        RAISE INFO '%', pg_catalog.format('step %s of %s: %s', VARIADIC ARRAY[number::pg_catalog.text, steps::pg_catalog.text, step.call]);
        IF NOT coalesce(dry_run, true) THEN
            CALL shardmaster.adoption_take(step, shard, target, keyspace, timeout);
        END IF;
    END LOOP;
    IF coalesce(dry_run, true) THEN
        RAISE INFO 'nothing was changed: the same call with "dry_run => false" takes these steps';
        RETURN;
    END IF;
    IF target IS NULL THEN
        RETURN;
    END IF;
    SELECT c.key, c.findings INTO checked FROM shardmaster.check_of_a_tenant(shard, target, keyspace) c;
    IF checked.key IS NULL THEN
        RAISE INFO 'shard "%" has no tenant yet', shard;
    ELSIF pg_catalog.cardinality(checked.findings) OPERATOR(pg_catalog.=) 0 THEN
        RAISE INFO '%', pg_catalog.format('tenant %s could move now: CALL shard_move(%s, %L)', VARIADIC ARRAY[checked.key,
                       pg_catalog.quote_literal(ARRAY[checked.key]::pg_catalog.text), target]);
    ELSE
        FOR number IN 1 .. pg_catalog.cardinality(checked.findings) LOOP
            RAISE INFO 'in the way of a move: %', checked.findings[number];
        END LOOP;
    END IF;
END $$;
COMMENT ON PROCEDURE @extschema@.shard_adopt_database(text, text, text, text[], text, text[], boolean, interval) IS
    'brings a database that was not sharded under a keyspace, while clients write, by the steps that shard_survey() proposes: gives tables a primary key and the column of their tenant, registers tables, gives each shard numbers of its own, assigns the tenants, and creates the tables on target. First says what a person has to decide. dry_run (the default): shows the steps alone. A call that was ended, or has failed, goes on where it was when it is made again. Each step can be taken back by a call of its own, which shard_survey_sql() names. tenant: the column that holds the tenant. target: a second shard; at the end the split of one tenant to it is checked. accept: tables whose tenant is unclear, which are to get it as proposed. timeout: for each question to the shards. Example: CALL shard_adopt_database(''a'', ''tenant_id'', ''b'', dry_run => false). 22023: accept names no such table; 0A000: the keyspace is no directory; 25001: in a transaction block; errors of shard_survey() and of the steps';

-- The last: what is new gets the rights that CREATE EXTENSION gives it, whatever default privileges there are. What was there
-- before keeps those that it has.
DO $$
DECLARE
    there   oid[] := current_setting('shardmaster_update.there');
    routine regprocedure;
    role    text;
BEGIN
    FOR routine, role IN
        SELECT DISTINCT p.oid, coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_depend d
          JOIN pg_proc p ON p.oid = d.objid
         CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
           AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster')
           AND d.deptype = 'e' AND p.oid <> ALL (there) AND p.proname <> 'shard_for' AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', routine, role);
    END LOOP;
    FOR routine IN SELECT p.oid FROM shardmaster.routines_of_level('monitor') p (oid) WHERE p.oid::oid <> ALL (there) LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO pg_monitor', routine);
    END LOOP;
    PERFORM shardmaster.keep_tables_own(there);
END $$;
