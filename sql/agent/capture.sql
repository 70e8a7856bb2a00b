-- Called for every changed row of the scope, by every writer, with the mover's rights.
-- It has no SET clause, which would cost each of them a tenth of its transaction. So
-- that no search_path changes what it does, all names in it are qualified: functions,
-- types, and operators, those that IN, IS DISTINCT FROM and CASE would look for too.
--
-- The lock is taken before the statement that reads the state, which so has a newer
-- snapshot: read in one statement with the lock, the state would still be the one from
-- before the fence.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
DECLARE
    now_state pg_catalog.text;
    entry     bigint;
    is_queued boolean := false;
BEGIN
    IF pg_catalog.current_setting('shardmaster_agent.mover', true) OPERATOR(pg_catalog.<>) '' THEN
        IF shardmaster_agent.is_mover() THEN
            RETURN NULL;
        END IF;
    END IF;
    -- As a condition it is evaluated without a query, which costs writers less.
    IF pg_catalog.pg_advisory_xact_lock_shared({lock}) IS NULL THEN
        RETURN NULL;
    END IF;
    -- A snapshot from before the fence gets 40001 here; it could not read the state.
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        PERFORM 1 FROM shardmaster_agent.side
          WHERE split_id OPERATOR(pg_catalog.=) {split} AND side OPERATOR(pg_catalog.=) 'source' FOR SHARE;
    END IF;
    entry := pg_catalog.nextval('shardmaster_agent.{sequence}'::pg_catalog.regclass);
    IF entry OPERATOR(pg_catalog.>=) {full} THEN
        SELECT state INTO now_state FROM shardmaster_agent.side
         WHERE split_id OPERATOR(pg_catalog.=) {split} AND side OPERATOR(pg_catalog.=) 'source';
        -- Past its lease or its size the queue takes no more, and the copy starts again:
        -- the writer does not fail because of the split.
        IF now_state OPERATOR(pg_catalog.=) 'capture' THEN
            INSERT INTO shardmaster_agent.overflow (split_id, xid) VALUES ({split}, pg_catalog.pg_current_xact_id())
                ON CONFLICT DO NOTHING;
            RETURN NULL;
        END IF;
    -- The state and the entry in one statement, begun when the lock was there.
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        INSERT INTO shardmaster_agent.{queue} (seq, op, {queue_keys}) SELECT entry, 'U', {old_keys} {if_captured};
        is_queued := FOUND;
        -- Compares images: a key type's own equality may be of any schema.
        IF is_queued AND pg_catalog.record_image_ne(ROW({new_keys}), ROW({old_keys})) THEN
            INSERT INTO shardmaster_agent.{queue} (seq, op, {queue_keys})
            VALUES (pg_catalog.nextval('shardmaster_agent.{sequence}'::pg_catalog.regclass)
                        OPERATOR(pg_catalog.%) {full}, 'U', {new_keys});
        END IF;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        INSERT INTO shardmaster_agent.{queue} (seq, op, {queue_keys}) SELECT entry, 'I', {new_keys} {if_captured};
        is_queued := FOUND;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
        INSERT INTO shardmaster_agent.{queue} (seq, op, {queue_keys}) SELECT entry, 'D', {old_keys} {if_captured};
        is_queued := FOUND;
    ELSE
        INSERT INTO shardmaster_agent.{queue} (seq, op) SELECT entry, 'T' {if_captured};
        is_queued := FOUND;
    END IF;
    IF NOT is_queued THEN
        IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            PERFORM shardmaster_agent.{refuse}(ARRAY[NEW.{shard_by}]);
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            PERFORM shardmaster_agent.{refuse}(ARRAY[NEW.{shard_by}, OLD.{shard_by}]);
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
            PERFORM shardmaster_agent.{refuse}(ARRAY[OLD.{shard_by}]);
        ELSE
            PERFORM shardmaster_agent.{refuse}(NULL);
        END IF;
        RETURN NULL;
    END IF;
    -- Looked at now and then: the size of a file costs as much as the entry itself. That
    -- the queue is full the sequence tells the next ones, at no cost: a mark of this
    -- transaction would have to be looked for by every writer. Numbers that others draw
    -- in this moment are skipped.
    IF entry OPERATOR(pg_catalog.%) {sample} OPERATOR(pg_catalog.=) 0 THEN
        IF NOT EXISTS (SELECT 1 FROM shardmaster_agent.lease
                        WHERE split_id OPERATOR(pg_catalog.=) {split}
                          AND pg_catalog.clock_timestamp() OPERATOR(pg_catalog.<) open_until
                          AND {queue_sizes} OPERATOR(pg_catalog.<) max_bytes) THEN
            PERFORM pg_catalog.setval('shardmaster_agent.{sequence}'::pg_catalog.regclass,
                                      s.last_value OPERATOR(pg_catalog.+) {full} OPERATOR(pg_catalog.+) 1000000)
               FROM shardmaster_agent.{sequence} s WHERE s.last_value OPERATOR(pg_catalog.<) {full};
        END IF;
    END IF;
    RETURN NULL;
END $agent$;
