-- The lookup of a list with mode allow, which WHEN clauses call for each row that comes, or
-- gets another key. It raises the refusal itself, and has no SET clause: see the one for deny.
--
-- A transaction that keeps its snapshot may be older than what the list has got since. It
-- cannot lock the list's row then (40001), which each change of the list writes: it is never
-- refused for what it does not see.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(wanted {type}) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER AS $agent$
DECLARE
    of_namespace pg_catalog.text;
    of_keyspace  pg_catalog.text;
BEGIN
    PERFORM 1 FROM ({found}) s;
    IF FOUND THEN
        RETURN false;
    END IF;
    -- Not as constants, see is_mover; and here, since nearly all have gone by now.
    of_namespace := {namespace};
    of_keyspace := {keyspace};
    IF pg_catalog.current_setting('shardmaster_agent.mover', true) OPERATOR(pg_catalog.<>) '' THEN
        IF shardmaster_agent.is_mover(NULL, of_namespace, of_keyspace) THEN
            RETURN false;
        END IF;
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'repeatable read'
       OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'serializable' THEN
        PERFORM 1 FROM shardmaster_agent.key_list g
          WHERE g.mode OPERATOR(pg_catalog.=) 'allow' AND g.id OPERATOR(pg_catalog.=) {id} FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'could not serialize access: this transaction began before this shard was guarded'
                USING ERRCODE = '40001', HINT = 'Retry the transaction.';
        END IF;
    END IF;
    -- Not a cast: whoever owns an enum could have made one.
    RAISE EXCEPTION 'key "%" does not belong to shard "%"', pg_catalog.format('%s', wanted), {shard}
        USING ERRCODE = 'SM001',
              DETAIL = pg_catalog.json_build_object('key', pg_catalog.format('%s', wanted), 'shard', {shard},
                                                    'keyspace', of_keyspace)::pg_catalog.text,
              HINT = 'Refresh the route of the key and retry the transaction on its shard. A new key is assigned first, with {assigned_by}().';
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}({type}) TO PUBLIC;
