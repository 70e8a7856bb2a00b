-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Whose code the mover may run, and who has said so.
CREATE FUNCTION @extschema@.shard_trusted_owners()
RETURNS TABLE (shard_key text, role text, since timestamptz, said_by text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.shard_key, t.role, t.since, t.said_by FROM shardmaster.trusted_owner t ORDER BY 1, 2
$$;
COMMENT ON FUNCTION @extschema@.shard_trusted_owners() IS
    'the roles of shards whose code the mover may run, by shard_trust_owner(). Example: SELECT * FROM shard_trusted_owners()';

SET LOCAL search_path = @extschema@, pg_temp;
