-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- From whatever phase a split is in to the one that is asked for, with a line a
-- second. A procedure, because each call must be committed before a worker sees it.
-- No SET clause, which would forbid COMMIT: every name is qualified instead, types as well. Whoever may create
-- functions in the schema of the calls could have one that fits better: so each argument is given, of its very type.
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
                USING ERRCODE = 'XX000', HINT = 'Call it by hand.';
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
COMMENT ON PROCEDURE shardmaster.split_run(bigint, text) IS 'internal: shard_split_run() without its account';

CREATE PROCEDURE @extschema@.shard_split_run(split_id bigint, until text DEFAULT 'completed')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
    CALL shardmaster.split_run(split_id, until);
    RAISE INFO '%', shardmaster.split_account(split_id, began);
END $$;

COMMENT ON PROCEDURE @extschema@.shard_split_run(bigint, text) IS
    'runs a split from whatever phase it is in to another (default: completed; also finished, or rolled_back before its cutover has decided), with a line a second, in psql with a bar while rows are copied, and an account at the end: rows, time, how long writers waited and for whom, what to call next. A cutover is tried three times. Raises the split''s error; 57014: it has tried in vain to begin for half a minute, and goes on trying';
COMMENT ON FUNCTION @extschema@.shard_split_plan_range(text, text, text, text, text, text) IS
    'plans a split that moves the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace; ranges across a bound are cut there, which is a routing version of its own. Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_plan_all(text, text, text, text) IS
    'plans a split that moves everything of the keyspace that is routed to the source now: a merge, or the move of a whole shard. Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_plan(text, text, text[], text, text) IS
    'plans the move of tenants, in a hash keyspace of buckets, from one shard to another; returns the split''s id; refuses what is wrong on paper';
COMMENT ON FUNCTION @extschema@.shard_split_map(bigint, text, text, text) IS
    'says how a column of a table comes over: an expression in SQL over a row of the source, or NULL, which leaves the column out; the column''s own name takes back what was said; the table as shard_tables() writes it. Before the split has begun (55000 else); 42704: no such split, or no such table in it';
COMMENT ON FUNCTION @extschema@.shard_split_accept(bigint, text, text) IS
    'accepts a remark of shard_split_check(), which stops the split before anything moves until then: by the check''s name and the object, as its columns check_name and object have them. Kept with the plan and in its events. Before the split has begun (55000); 22023: no check whose remarks are accepted; 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_start_dual_write(bigint, text) IS
    'asks for capture on the source and the guard on the target; returns at once. on_ddl says what a change of a moving table on the source is answered with: wait until somebody has made it on the target, too (''wait'', the default), or apply it there (''apply''), as far as it is one of columns or a partition that came; NULL: as was said before. 22023: neither of them';
COMMENT ON FUNCTION @extschema@.shard_split_run_backfill(bigint) IS
    'asks for the copy, or resumes one that failed; returns at once';
COMMENT ON FUNCTION @extschema@.shard_split_replay_tail(bigint) IS
    'resumes a tail that failed, otherwise asks for a window of changes now; returns at once';
COMMENT ON FUNCTION @extschema@.shard_split_cutover(bigint, interval, timestamptz, timestamptz, integer) IS
    'asks for the cutover (phase cutover_pending only): one that keeps writers waiting for at most max_fence (NULL: shardmaster.cutover_timeout), that begins not before one time and not after another, and is tried so many times, a second to a minute apart; given up, the split goes on following its source; returns at once. 22023: a window that is over; 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_rehearse(bigint, interval) IS
    'does all of a cutover up to its decision, and sets it back: writers wait as they would, at most max_fence (NULL: shardmaster.cutover_timeout), and nothing changes; shard_split_events() says how long they waited and for whom, and shard_split_metrics() shows it as rehearsed_ms; returns at once. 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_reverse(bigint, boolean) IS
    'takes a split back after its cutover: what clients have changed on the target goes to the source, then one commit sends them there again; returns the split that does it. Where that is not known any more, since its queue was full say, all rows of a table are copied: those that the source has kept are replaced, if shard_split_verify() has found them on the target since the cutover, or if copy_again says that they may be. Not for a split that was started with shardmaster.reverse off. 55000: it has no way back, or is not completed';
COMMENT ON FUNCTION @extschema@.shard_split_rollback(bigint, boolean) IS
    'undoes a split whose cutover has not decided: both sides are cleaned; with target_lost nothing is asked of a target that is gone for good, and what it holds is left to shard_cleanup; returns at once';
COMMENT ON FUNCTION @extschema@.shard_split_finish(bigint, boolean, boolean) IS
    'deletes the moved rows from the source once the split is completed, each after the target has shown that it has it or that a client has deleted it there; what it has not fails the split and stays, unless accept_missing says that it may go; with source_lost nothing is asked of a source that is gone for good: the target opens, and the split ends; returns at once';
COMMENT ON FUNCTION @extschema@.shard_split_switch_reads(bigint, boolean) IS
    'sends reads of a split''s keys to its target before the cutover (phases tailing and cutover_pending), or back: shard_route and its like with the intent read. There they see what the source had as long ago as lag in shard_split_metrics() says. They go back by themselves before rows are copied again, and with a rollback. 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_settle_for(bigint, interval, bigint) IS
    'deprecated: the name of shard_split_auto_finish() until version 0.4';
COMMENT ON FUNCTION @extschema@.shard_split_pause(bigint) IS
    'the worker rests after its current step; changes go on being queued';
COMMENT ON FUNCTION @extschema@.shard_split_resume(bigint) IS
    'ends a pause, and resumes a split that failed';
COMMENT ON FUNCTION @extschema@.shard_split_wait(bigint, text, interval) IS
    'waits until a split has reached a phase, also ''finished''; returns the phase; raises the split''s error, or 57014 at the timeout';
COMMENT ON FUNCTION @extschema@.shard_split_points() IS
    'the named points of a split, in order; see the setting shardmaster.fault';
COMMENT ON FUNCTION @extschema@.shard_split_lifecycle() IS
    'the life of a split: each allowed change of phase with what brings it about (call is NULL), then what each call does in each phase: to_phase is what is asked for from then on, NULL: that stays, or the call is refused, as condition says';
COMMENT ON FUNCTION shardmaster.split_next_call(bigint, text, boolean) IS
    'internal: what shard_split_run calls next; '''' to wait, NULL at the end';
COMMENT ON FUNCTION shardmaster.split_wait_for_change(bigint, bigint) IS
    'internal: waits until a split''s state changes, or for some milliseconds';

SET LOCAL search_path = @extschema@, pg_temp;
