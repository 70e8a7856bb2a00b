-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

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

SET LOCAL search_path = @extschema@, pg_temp;
