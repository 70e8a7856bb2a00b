-- The steps are statements of their own, each with a new snapshot: read in one
-- statement with the lock, the state would still be the one from before the fence.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    now_state   text;
    now_version bigint;
    overflowed  boolean;
    entry       bigint;
BEGIN
    IF current_setting('shardmaster_agent.mover', true) <> '' THEN
        IF EXISTS (SELECT 1 FROM shardmaster_agent.side
                    WHERE token = current_setting('shardmaster_agent.mover', true)) THEN
            RETURN NULL;
        END IF;
    END IF;
    -- As a condition it is evaluated without a query, which costs writers less.
    IF pg_advisory_xact_lock_shared({lock}) IS NULL THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        SELECT state, version, EXISTS (SELECT 1 FROM shardmaster_agent.overflow WHERE split_id = {split})
          INTO now_state, now_version, overflowed
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'source' FOR SHARE;
    ELSE
        SELECT state, version, EXISTS (SELECT 1 FROM shardmaster_agent.overflow WHERE split_id = {split})
          INTO now_state, now_version, overflowed
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'source';
    END IF;
    IF now_state IS NULL THEN
        RAISE EXCEPTION 'could not serialize access: this transaction began before split {split}'
            USING ERRCODE = '40001', HINT = 'Retry the transaction.';
    END IF;

    IF now_state <> 'capture' THEN
        DECLARE
            moved_key text;
        BEGIN
            IF TG_OP = 'TRUNCATE' THEN
                IF now_state = 'moved' THEN
                    RETURN NULL;
                END IF;
            ELSE
                IF TG_OP <> 'DELETE' THEN
                    SELECT key::text INTO moved_key FROM shardmaster_agent.{scope} WHERE key = NEW.{shard_by};
                END IF;
                IF TG_OP <> 'INSERT' AND moved_key IS NULL THEN
                    SELECT key::text INTO moved_key FROM shardmaster_agent.{scope} WHERE key = OLD.{shard_by};
                END IF;
                -- The key has come back since: another split gave it to this shard.
                IF moved_key IS NULL THEN
                    RETURN NULL;
                END IF;
            END IF;
            IF now_state = 'moved' THEN
                RAISE EXCEPTION 'key "%" has moved to shard "%"', moved_key, {other_shard}
                    USING ERRCODE = 'SM001',
                          DETAIL = json_build_object('key', moved_key, 'shard', {other_shard},
                                                     'routing_version', now_version)::text,
                          HINT = 'Refresh the route of the key and retry the transaction on its shard.';
            END IF;
            RAISE EXCEPTION 'key "%" is between shard "%" and shard "%"', moved_key, {shard}, {other_shard}
                USING ERRCODE = 'SM002',
                      DETAIL = json_build_object('key', moved_key, 'shard', {shard}, 'split_id', {split})::text,
                      HINT = 'Refresh the route of the key and retry the transaction after a moment.';
        END;
    END IF;

    -- Past its lease or its size the queue takes no more, and the copy starts again:
    -- the writer does not fail because of the split.
    IF overflowed THEN
        INSERT INTO shardmaster_agent.overflow (split_id, xid) VALUES ({split}, pg_current_xact_id())
            ON CONFLICT DO NOTHING;
    ELSIF TG_OP = 'TRUNCATE' THEN
        INSERT INTO shardmaster_agent.{queue} (op) VALUES ('T');
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES ('I', {new_keys}) RETURNING seq INTO entry;
    ELSE
        INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES (left(TG_OP, 1)::"char", {old_keys})
            RETURNING seq INTO entry;
        IF TG_OP = 'UPDATE' THEN
            IF ROW({new_keys}) IS DISTINCT FROM ROW({old_keys}) THEN
                INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES ('U', {new_keys});
            END IF;
        END IF;
    END IF;
    -- Looked at now and then: the size of a file costs as much as the entry itself.
    IF entry % {sample} = 0 THEN
        IF NOT EXISTS (SELECT 1 FROM shardmaster_agent.lease
                        WHERE split_id = {split} AND clock_timestamp() < open_until
                          AND {queue_sizes} < max_bytes) THEN
            INSERT INTO shardmaster_agent.overflow (split_id, xid) VALUES ({split}, pg_current_xact_id())
                ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    RETURN NULL;
END $agent$;
