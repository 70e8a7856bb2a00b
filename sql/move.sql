-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

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

SET LOCAL search_path = @extschema@, pg_temp;
