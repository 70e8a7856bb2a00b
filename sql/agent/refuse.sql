-- What a writer is told when the source does not take its change: a row's, or that of
-- TRUNCATE, which has no keys. It reads the state again; who has seen `fenced` may
-- find that the cutover has been set back meanwhile, and tries again all the same.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(change "char", new_by {type}, old_by {type}) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    now_state   text;
    now_version bigint;
    found_key   text;
BEGIN
    SELECT state, version INTO now_state, now_version
      FROM shardmaster_agent.side WHERE split_id = {split} AND side = 'source';
    IF now_state IS NULL THEN
        RAISE EXCEPTION 'could not serialize access: this transaction began before split {split}'
            USING ERRCODE = '40001', HINT = 'Retry the transaction.';
    END IF;
    IF change = 'T' AND now_state = 'moved' THEN
        -- The rows that stay are the writer's own; the others have left this shard.
        RETURN;
    END IF;
    IF change <> 'T' THEN
        -- Not a cast: whoever owns an enum could have made one.
        SELECT format('%s', wanted) INTO found_key
          FROM unnest(ARRAY[new_by, old_by]) wanted JOIN shardmaster_agent.{scope} s ON {match} LIMIT 1;
        -- The key has come back since: another split gave it to this shard.
        IF found_key IS NULL THEN
            RETURN;
        END IF;
    END IF;
    IF now_state = 'moved' THEN
        RAISE EXCEPTION 'key "%" has moved to shard "%"', found_key, {other_shard}
            USING ERRCODE = 'SM001',
                  DETAIL = json_build_object('key', found_key, 'shard', {other_shard},
                                             'routing_version', now_version)::text,
                  HINT = 'Refresh the route of the key and retry the transaction on its shard.';
    END IF;
    RAISE EXCEPTION '% between shard "%" and shard "%"',
                    coalesce(format('key "%s" is', found_key), 'keys of this table are'), {shard}, {other_shard}
        USING ERRCODE = 'SM002',
              DETAIL = json_build_object('key', found_key, 'shard', {shard}, 'split_id', {split})::text,
              HINT = 'Refresh the route of the key and retry the transaction after a moment.';
END $agent$;
