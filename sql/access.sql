-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Who may call what. A level holds those before it that it names: an operator may do what
-- clients and monitors may, an admin what operators may.

-- One row for each routine that somebody may call by its name, or that a procedure of his calls as himself: those have no
-- "shard_" before their names, and are in the catalog's schema. What is in no row is called by the extension alone.
CREATE FUNCTION shardmaster.routine_levels() RETURNS TABLE (level text, routine name)
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
COMMENT ON FUNCTION shardmaster.routine_levels() IS 'which level of shard_grant() includes which routine; a higher level includes the lower ones';

-- The routines of a level and of those that it holds; none: there is no such level.
CREATE FUNCTION shardmaster.routines_of_level(level text) RETURNS SETOF regprocedure
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
COMMENT ON FUNCTION shardmaster.routines_of_level(text) IS 'the routines that shard_grant() of a level grants';

-- Runs a GRANT or a REVOKE for each routine of a level, as whoever calls it: the rights are
-- the extension's owner's to give.
CREATE FUNCTION shardmaster.change_level(role name, level text, statement text) RETURNS void
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
COMMENT ON FUNCTION shardmaster.change_level(name, text, text) IS 'runs a statement for each routine of a level';

CREATE FUNCTION @extschema@.shard_grant(role name, level text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.change_level(role, level, 'GRANT EXECUTE ON ROUTINE %s TO %I')
$$;
COMMENT ON FUNCTION @extschema@.shard_grant(name, text) IS
    'lets a role call the functions of a level: client (routes, slots, identifiers), monitor (states), operator (both, splits, assignments), admin (all of these, topology, keyspaces). Only the extension''s owner may call it. Example: SELECT shard_grant(''app'', ''client''). 22023: no such level; 42704: no such role';

CREATE FUNCTION @extschema@.shard_revoke(role name, level text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.change_level(role, level, 'REVOKE EXECUTE ON ROUTINE %s FROM %I')
$$;
COMMENT ON FUNCTION @extschema@.shard_revoke(name, text) IS
    'revokes what shard_grant() of the level granted, including the levels below it. Only the extension''s owner may call it. Example: SELECT shard_revoke(''app'', ''client''). Errors as of shard_grant';

SET LOCAL search_path = @extschema@, pg_temp;
