-- A look-up for scopes of many keys: a literal list would cost the tenants that
-- stay in proportion to those that move. Called in WHEN clauses with the rights of
-- the writer, so every writer may execute it; it reads with the mover's.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(wanted {type}) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    RETURN EXISTS (SELECT 1 FROM shardmaster_agent.{scope} WHERE key = wanted);
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}({type}) TO PUBLIC;
