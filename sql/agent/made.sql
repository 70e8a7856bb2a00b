-- Makes what the agent's schema always has, unless this version has made it and it is there as it was made: to make it anew
-- changes catalogs, which each session of the shard then reads again. What is looked at before the lock is taken may have changed
-- since: then the caller begins again.
DO $made$
DECLARE
    names pg_catalog.text[] := {names};
BEGIN
    -- The owner of the schema is who puts anything into it; a session refuses it as it begins if anybody else did.
    IF pg_catalog.to_regclass('shardmaster_agent.made') IS NOT NULL
       AND EXISTS (SELECT FROM pg_catalog.pg_namespace n
                    WHERE n.nspname = 'shardmaster_agent'
                      AND n.nspowner = pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))) THEN
        IF EXISTS (SELECT FROM shardmaster_agent.made WHERE digest = {digest} AND objects = {objects}) THEN
            LOCK TABLE shardmaster_agent.master IN {mode} MODE;
            IF NOT EXISTS (SELECT FROM shardmaster_agent.made WHERE digest = {digest} AND objects = {objects}) THEN
                RAISE undefined_table;
            END IF;
            RETURN;
        END IF;
    END IF;
    EXECUTE {statements};
    DELETE FROM shardmaster_agent.made;
    INSERT INTO shardmaster_agent.made (digest, objects) VALUES ({digest}, {objects});
END $made$;
