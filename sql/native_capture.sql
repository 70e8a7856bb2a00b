-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Makes the trigger function of one table of a split on this shard a native one, for its owner alone, who has made it in
-- PL/pgSQL before. Functions in C are made by superusers only; this is one of the library's own, which reads and writes
-- what belongs to its owner, whoever that is.
CREATE FUNCTION shardmaster.native_capture(split bigint, ordinal int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made name := format('capture_%s_%s', split, ordinal);
BEGIN
    -- The session's own role: it may own nothing else than it could before.
    IF NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                     JOIN pg_roles r ON r.oid = p.proowner AND r.rolname = session_user
                    WHERE n.nspname = 'shardmaster_agent' AND p.proname = made AND p.pronargs = 0) THEN
        RAISE EXCEPTION 'function shardmaster_agent.%() does not exist, or belongs to another role', made
            USING ERRCODE = '42501', HINT = 'Only the worker of a split calls it, after it has created that function.';
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION shardmaster_agent.%I() RETURNS trigger LANGUAGE c VOLATILE AS %L, %L',
                   made, 'MODULE_PATHNAME', 'shardmaster_capture_1');
END $$;
COMMENT ON FUNCTION shardmaster.native_capture(bigint, int) IS 'replaces a capture function of a split on this shard, which the caller owns, by a native one';

SET LOCAL search_path = @extschema@, pg_temp;
