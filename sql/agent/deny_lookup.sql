-- The lookup of a list with mode deny, in two functions that WHEN clauses call for each row
-- that a client writes. They have no SET clause, which would cost more than the lookup, so all
-- names in them are qualified: types and operators too.
--
-- The first one spares most tenants that stay the second: it is the filter, in which some
-- keys that stay are found, too, and nothing but an expression.
CREATE OR REPLACE FUNCTION shardmaster_agent.{filter_function}(wanted {type}) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT {security} AS $agent$
BEGIN
    RETURN {filter};
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{filter_function}({type}) TO PUBLIC;

-- The second one raises the refusal itself: a condition knows its column by number, a
-- trigger function would know it by name. The texts of both are always the newest, the rows
-- are those of the transaction's snapshot. One that is older than the list's last change
-- does not see the number that the text has.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(wanted {type}) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER AS $agent$
DECLARE
    found_shard   pg_catalog.text;
    found_version pg_catalog.int8;
    of_namespace  pg_catalog.text;
    of_keyspace   pg_catalog.text;
BEGIN
    IF pg_catalog.current_setting('shardmaster_agent.mover', true) OPERATOR(pg_catalog.<>) '' THEN
        -- Not as constants, see is_mover.
        of_namespace := {namespace};
        of_keyspace := {keyspace};
        IF shardmaster_agent.is_mover(NULL, of_namespace, of_keyspace) THEN
            RETURN false;
        END IF;
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'repeatable read'
       OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'serializable' THEN
        PERFORM 1 FROM shardmaster_agent.key_list r
          WHERE r.mode OPERATOR(pg_catalog.=) 'deny' AND r.id OPERATOR(pg_catalog.=) {id}
            AND r.version OPERATOR(pg_catalog.=) {version};
        IF NOT FOUND THEN
            RAISE EXCEPTION 'could not serialize access: this transaction began before keys left this shard'
                USING ERRCODE = '40001', HINT = 'Retry the transaction.';
        END IF;
    END IF;
    SELECT s.shard, s.version INTO found_shard, found_version FROM ({found}) s LIMIT 1;
    IF found_shard IS NULL THEN
        RETURN false;
    END IF;
    -- Not a cast: whoever owns an enum could have made one.
    RAISE EXCEPTION 'key "%" has moved to shard "%"', pg_catalog.format('%s', wanted), found_shard
        USING ERRCODE = 'SM001',
              DETAIL = pg_catalog.json_build_object('key', pg_catalog.format('%s', wanted), 'shard', found_shard,
                                                    'routing_version', found_version)::pg_catalog.text,
              HINT = 'Refresh the route of the key and retry the transaction on its shard.';
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}({type}) TO PUBLIC;
