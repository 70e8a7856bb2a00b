-- On the target, until it is open: only the mover writes to rows of the scope. Called in
-- the WHEN clauses of its row triggers, which are not called for the mover, see is_mover.
-- Once it is open, keys of rows that clients change are noted: finish compares all others
-- with those of the source.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}_row(change "char", new_by {by_type}, old_by {by_type}, {arguments}) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    now_state text;
    found_key text;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        SELECT state INTO now_state
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'target' FOR SHARE;
    ELSE
        SELECT state INTO now_state
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'target';
    END IF;
    IF now_state = 'open' THEN
        IF change = 'D' OR change = 'U' AND record_image_ne(ROW({new_keys}, new_by), ROW({old_keys}, old_by)) THEN
            INSERT INTO shardmaster_agent.{changed} (op, {keys}) SELECT change, {old_keys}
             WHERE pg_relation_size('shardmaster_agent.{changed}') < {max_bytes};
        -- Once for each key, as far as this snapshot tells: twice does no harm.
        ELSIF change = 'U' AND NOT EXISTS (SELECT 1 FROM shardmaster_agent.{changed} c WHERE {same_key}) THEN
            IF pg_relation_size('shardmaster_agent.{changed}') < {max_values} THEN
                INSERT INTO shardmaster_agent.{changed} (op, {keys}) VALUES ('C', {old_keys});
            ELSIF NOT EXISTS (SELECT 1 FROM shardmaster_agent.{changed} c WHERE c.k1 IS NULL AND c.op = 'O') THEN
                INSERT INTO shardmaster_agent.{changed} (op) VALUES ('O');
            END IF;
        END IF;
        RETURN false;
    END IF;
    IF now_state IS NULL THEN
        RAISE EXCEPTION 'could not serialize access: this transaction began before split {split}'
            USING ERRCODE = '40001', HINT = 'Retry the transaction.';
    END IF;
    -- Not a cast: whoever owns an enum could have made one.
    found_key := format('%s', CASE change WHEN 'D' THEN old_by ELSE new_by END);
    RAISE EXCEPTION 'key "%" has not arrived on shard "%" yet', found_key, {shard}
        USING ERRCODE = 'SM002',
              DETAIL = json_build_object('key', found_key, 'shard', {shard}, 'split_id', {split})::text,
              HINT = 'Refresh the route of the key and retry the transaction after a moment.';
END $agent$;

-- What the triggers name as their function. Only those for TRUNCATE ever call it.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    now_state text;
    -- Not a constant, see is_mover.
    this      bigint := {split};
BEGIN
    IF TG_OP <> 'TRUNCATE' OR shardmaster_agent.is_mover(this, NULL, NULL) THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        SELECT state INTO now_state
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'target' FOR SHARE;
    ELSE
        SELECT state INTO now_state
          FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'target';
    END IF;
    IF now_state = 'open' THEN
        -- A table that was renamed or detached keeps this trigger, but no row of the table.
        INSERT INTO shardmaster_agent.{changed} (op, leaf) SELECT 'T', TG_RELID
         WHERE to_regclass({table}) IN (SELECT TG_RELID UNION ALL SELECT relid FROM pg_partition_ancestors(TG_RELID));
        RETURN NULL;
    END IF;
    IF now_state IS NULL THEN
        RAISE EXCEPTION 'could not serialize access: this transaction began before split {split}'
            USING ERRCODE = '40001', HINT = 'Retry the transaction.';
    END IF;
    RAISE EXCEPTION 'table "%" is the target of split {split}', TG_TABLE_NAME
        USING ERRCODE = '55006', HINT = 'Wait for the split''s cutover, or roll it back with shard_split_rollback({split}).';
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}_row TO PUBLIC;
