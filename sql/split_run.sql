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
    'runs a split from its phase to another one: completed (the default), finished, any phase in between, or rolled_back before its cutover has decided. Prints a line a second, in psql with a bar while rows are copied, and a summary at the end: rows, time, how long writers waited and for whom, what to call next. A cutover is tried three times. Example: CALL shard_split_run(7, ''cutover_pending''). Raises the split''s error. 57014: the split could not begin for half a minute; it goes on trying';
COMMENT ON FUNCTION @extschema@.shard_split_plan_range(text, text, text, text, text, text) IS
    'plans a split that moves the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace. Ranges across a bound are divided there, which is a routing version of its own. Example: SELECT shard_split_plan_range(''a'', ''b'', ''1000'', ''2000'', ''orders''). Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_plan_all(text, text, text, text) IS
    'plans a split that moves everything of the keyspace that is now routed to the source: a merge, or the move of a whole shard. Example: SELECT shard_split_plan_all(''a'', ''b''). Errors as of shard_split_plan';
COMMENT ON FUNCTION @extschema@.shard_split_plan(text, text, text[], text, text) IS
    'plans a split that moves tenants (in a hash keyspace: buckets) from one shard to another, and returns its id. Nothing is asked of the shards. What is wrong by the catalog is refused. Example: SELECT shard_split_plan(''a'', ''b'', ''{42}''). 22023: a key is not routed to the source, or the target takes none; 55006: another split moves a key';
COMMENT ON FUNCTION @extschema@.shard_split_map(bigint, text, text, text) IS
    'sets how a column of a table is copied: an SQL expression over a row of the source, or NULL, which leaves the column out. The column''s own name removes the mapping. The table is named as in shard_tables(). Example: SELECT shard_split_map(7, ''orders'', ''note'', ''upper(note)''). 55000: the split has begun; 42704: no such split, or no such table in it';
COMMENT ON FUNCTION @extschema@.shard_split_accept(bigint, text, text) IS
    'accepts a remark of shard_split_check(), which stops the split until then. The remark is named by the check''s columns check_name and object. It is kept with the plan and in its events. Example: SELECT shard_split_accept(7, ''source: large objects'', ''public.files''). 55000: the split has begun; 22023: not a check whose remarks can be accepted; 42704: no such split';
COMMENT ON FUNCTION @extschema@.shard_split_start_dual_write(bigint, text) IS
    'starts a split: the check runs, then the source captures changes and the target is guarded. Returns at once. on_ddl: what happens when a moving table changes on the source: ''wait'' until somebody has changed the target as well (the default), or ''apply'' changes of columns and new partitions to the target; NULL: as was said before. Example: SELECT shard_split_start_dual_write(7). 22023: on_ddl is neither of these';
COMMENT ON FUNCTION @extschema@.shard_split_run_backfill(bigint) IS
    'starts the copy, or resumes one that has failed. Returns at once. Example: SELECT shard_split_run_backfill(7)';
COMMENT ON FUNCTION @extschema@.shard_split_replay_tail(bigint) IS
    'applies the queued changes now, or resumes a split that has failed while it followed its source. Returns at once. Example: SELECT shard_split_replay_tail(7)';
COMMENT ON FUNCTION @extschema@.shard_split_cutover(bigint, interval, timestamptz, timestamptz, integer) IS
    'asks for the cutover of a split in phase cutover_pending. Returns at once. max_fence: how long writers may wait (NULL: shardmaster.cutover_timeout, which is the limit in any case). not_before, until: when it may begin. attempts: how often it is tried, a second to a minute apart. After the last failed attempt the split follows its source again. Example: SELECT shard_split_cutover(7, ''2 s''). 22023: a window that is over; 55000: not in this phase, or rows that differ';
COMMENT ON FUNCTION @extschema@.shard_split_rehearse(bigint, interval) IS
    'does everything that a cutover does up to its decision, and sets it back. Writers wait as they would, at most max_fence (NULL: shardmaster.cutover_timeout). Nothing changes. shard_split_metrics() shows the time as rehearsed_ms, shard_split_events() for whom it waited. Returns at once. Example: SELECT shard_split_rehearse(7). 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_reverse(bigint, boolean) IS
    'takes a completed split back: its reverse split brings what clients have changed on the target to the source, then one commit sends clients there again. Returns the id of the reverse split. Where the changes are not known, for example after its queue was full, all rows of a table are copied. They replace rows of the source if shard_split_verify() has compared these since the cutover, or if copy_again allows it. Example: SELECT shard_split_reverse(7). 55000: there is no reverse split, or the split is not completed';
COMMENT ON FUNCTION @extschema@.shard_split_rollback(bigint, boolean) IS
    'rolls a split back before its cutover has decided: both sides are cleaned. Returns at once. target_lost: the target is gone for good and is not asked; shard_cleanup() removes what it holds, should it come back. With target_lost a decided cutover is withdrawn as long as the target has not opened. Example: SELECT shard_split_rollback(7). 55000: the cutover has decided';
COMMENT ON FUNCTION @extschema@.shard_split_finish(bigint, boolean, boolean) IS
    'finishes a completed split: deletes the moved rows from the source, each after the target has shown that it has it, or that a client has deleted it there. Returns at once. A row that the target does not have stops the finish and stays. accept_missing: such rows may be deleted. source_lost: the source is gone for good and is not asked. Example: SELECT shard_split_finish(7). 55000: not completed';
COMMENT ON FUNCTION @extschema@.shard_split_switch_reads(bigint, boolean) IS
    'switches reads of a split''s keys to its target before the cutover (phases tailing and cutover_pending), or back: shard_route and its like with the intent read. There they see the source''s rows as they were so long ago as lag in shard_split_metrics() says. They are switched back before rows are copied again, and by a rollback. Example: SELECT shard_split_switch_reads(7). 55000: not in this phase';
COMMENT ON FUNCTION @extschema@.shard_split_settle_for(bigint, interval, bigint) IS
    'deprecated: use shard_split_auto_finish(). This name ends with version 0.4';
COMMENT ON FUNCTION @extschema@.shard_split_pause(bigint) IS
    'pauses a split after its current step. Changes are queued meanwhile. Example: SELECT shard_split_pause(7)';
COMMENT ON FUNCTION @extschema@.shard_split_resume(bigint) IS
    'resumes a split that is paused or has failed. Example: SELECT shard_split_resume(7)';
COMMENT ON FUNCTION @extschema@.shard_split_wait(bigint, text, interval) IS
    'waits until a split has reached a phase, ''finished'' or ''reversed'', and returns the phase. Raises the split''s error. Example: SELECT shard_split_wait(7, ''completed''). 57014: not within the timeout';
COMMENT ON FUNCTION @extschema@.shard_split_points() IS
    'the injection points of a split, in their order; see the setting shardmaster.fault. Example: SELECT * FROM shard_split_points()';
COMMENT ON FUNCTION @extschema@.shard_split_lifecycle() IS
    'the life of a split: each allowed change of phase with its cause (call is NULL), then what each call does in each phase. to_phase: what is requested from then on; NULL: that stays, or the call is refused, as condition says. Example: SELECT * FROM shard_split_lifecycle()';
COMMENT ON FUNCTION shardmaster.split_next_call(bigint, text, boolean) IS
    'internal: the call that shard_split_run makes next; '''' to wait, NULL at the end';
COMMENT ON FUNCTION shardmaster.split_wait_for_change(bigint, bigint) IS
    'internal: waits until a split''s state changes, or for some milliseconds';

SET LOCAL search_path = @extschema@, pg_temp;
