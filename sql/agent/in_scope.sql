-- A look-up for scopes of many keys: a literal list would cost the tenants that
-- stay in proportion to those that move. Called in WHEN clauses by every writer of
-- the table, for every row, so it has no SET clause, which would cost more than the
-- look-up itself: all names in it are qualified, operators too. A filter of bits, in
-- which some keys that stay are found too, spares most of them the query.
--
-- A transaction whose snapshot is older than the split sees no key at all. It is in
-- scope with every row: the trigger's function refuses it. Below REPEATABLE READ a
-- volatile function has a snapshot of its own for each query.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(wanted {type}) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER AS $agent$
BEGIN
    {filter}
    PERFORM 1 FROM shardmaster_agent.{scope} s WHERE {match};
    IF FOUND THEN
        RETURN true;
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT 1 FROM shardmaster_agent.{scope});
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}({type}) TO PUBLIC;
