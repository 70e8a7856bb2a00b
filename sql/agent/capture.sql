-- Called for every changed row of the scope, by every writer, in the trigger's WHEN clause:
-- that refers to columns by their numbers, so that renaming one breaks no writer, and a
-- trigger that never fires queues no event. Runs with the mover's rights and without a SET
-- clause, which would cost each writer 5 % of its time. So that no search_path
-- changes what it does, all names in it are qualified: functions, types, and operators,
-- those that IN, IS DISTINCT FROM and CASE would look for too.
--
-- Nothing of it is left in the writer's session: it draws no sequence, which lastval()
-- would show, and sets nothing.
--
-- The lock is taken before the statement that reads the state, which so has a newer
-- snapshot: read in one statement with the lock, the state would still be the one from
-- before the fence. It is a lock on a table that only the agent can touch, of a mode that
-- dumps do not meet, and lasts to the end of the transaction.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}_row(change "char", new_by {by_type}, old_by {by_type}, {arguments}) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
DECLARE
    now_state pg_catalog.text;
    is_queued boolean;
    this      pg_catalog.int8;
BEGIN
    -- Each expression, also that of a declaration, costs each transaction its start: so those
    -- that nearly all writers come by are few, and what is rare is told apart behind the entry.
    {judge}
    IF pg_catalog.current_setting('shardmaster_agent.mover', true) OPERATOR(pg_catalog.<>) '' THEN
        -- Not as a constant, see is_mover.
        this := {split};
        IF shardmaster_agent.is_mover(this, NULL, NULL) THEN
            RETURN false;
        END IF;
    END IF;
    LOCK TABLE shardmaster_agent.{barrier} IN ROW SHARE MODE;
    -- The state and the entry in one statement, begun when the lock was there. Where one version
    -- of the row stands for both, so do its keys.
    INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) SELECT change, {either_keys} {if_captured}
       AND (pg_catalog.pg_sequence_last_value('shardmaster_agent.{sequence}'::pg_catalog.regclass) OPERATOR(pg_catalog.>) 1) IS NOT TRUE;
    IF FOUND AND {same_keys}
       AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
       AND pg_catalog.date_part('microseconds', pg_catalog.clock_timestamp())::pg_catalog.int8
               OPERATOR(pg_catalog.%) {sample} OPERATOR(pg_catalog.<>) 0 THEN
        RETURN false;
    END IF;
    is_queued := FOUND;
    -- A snapshot from before the fence gets 40001 here, whatever it has read of the state, and its
    -- entry goes with it.
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        PERFORM 1 FROM shardmaster_agent.side
          WHERE split_id OPERATOR(pg_catalog.=) {split} AND side OPERATOR(pg_catalog.=) 'source' FOR SHARE;
    END IF;
    IF NOT is_queued THEN
        IF pg_catalog.pg_sequence_last_value('shardmaster_agent.{sequence}'::pg_catalog.regclass) OPERATOR(pg_catalog.>) 1 THEN
            SELECT state INTO now_state FROM shardmaster_agent.side
             WHERE split_id OPERATOR(pg_catalog.=) {split} AND side OPERATOR(pg_catalog.=) 'source';
            -- Past its lease or its size the queue takes no more, and the copy starts again:
            -- the writer does not fail because of the split.
            IF now_state OPERATOR(pg_catalog.=) 'capture' THEN
                -- One mark that is committed stands for all who see it, or they would fill the disk while
                -- no worker comes. An older snapshot may see one that has been dealt with since.
                INSERT INTO shardmaster_agent.overflow (split_id, xid)
                SELECT {split}, pg_catalog.pg_current_xact_id()
                 WHERE pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed'
                    OR NOT EXISTS (SELECT 1 FROM shardmaster_agent.overflow o WHERE o.split_id OPERATOR(pg_catalog.=) {split})
                    ON CONFLICT DO NOTHING;
                RETURN false;
            END IF;
        ELSE
            -- It may have been opened again since.
            INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) SELECT change, {either_keys} {if_captured};
            is_queued := FOUND;
        END IF;
    END IF;
    IF NOT is_queued THEN
        PERFORM shardmaster_agent.{refuse}(change, new_by, old_by);
        RETURN false;
    END IF;
    -- Compares images: a key type's own equality may be of any schema.
    IF change OPERATOR(pg_catalog.=) 'U' THEN
        IF pg_catalog.record_image_ne(ROW({new_keys}), ROW({old_keys})) THEN
            INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES (change, {new_keys});
        END IF;
    END IF;
    -- Looked at by those who come here, now and then, as the clock has it: the size of a file
    -- costs as much as the entry itself. That the queue is full a sequence tells the others, at
    -- once and at no cost: a mark of this transaction would have to be looked for by every writer.
    IF NOT EXISTS (SELECT 1 FROM shardmaster_agent.lease
                    WHERE split_id OPERATOR(pg_catalog.=) {split}
                      AND pg_catalog.clock_timestamp() OPERATOR(pg_catalog.<) open_until
                      AND {queue_sizes} OPERATOR(pg_catalog.<) max_bytes) THEN
        PERFORM pg_catalog.setval('shardmaster_agent.{sequence}'::pg_catalog.regclass, 2);
    END IF;
    RETURN false;
END $agent$;

-- What the triggers name as their function. Only those for TRUNCATE ever call it. One that is native already has
-- triggers that call it for rows.
DO $made$ BEGIN
IF NOT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
                WHERE p.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('shardmaster_agent')::pg_catalog.oid
                  AND p.proname OPERATOR(pg_catalog.=) '{function}' AND l.lanname OPERATOR(pg_catalog.=) 'c') THEN
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        PERFORM shardmaster_agent.{function}_row('T', NULL, NULL, {no_keys});
        RETURN NULL;
    END IF;
    -- A trigger without a condition, which the native function had: no change may go by.
    RAISE EXCEPTION 'function shardmaster_agent.{function}() of a capture trigger has been replaced'
        USING ERRCODE = '55000', HINT = 'Roll split {split} back and start it again.';
END $agent$;
END IF;
END $made$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}_row TO PUBLIC;
