-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Sessions keep routes that they have looked up. Whatever changes them invalidates this
-- table, which nobody reads: at the commit all sessions are told by the server's own
-- means, on standbys too. The table's owner is who the catalog is read as.
CREATE TABLE shardmaster.routing_signal ();
COMMENT ON TABLE shardmaster.routing_signal IS 'its invalidation tells sessions that routing has changed; always empty';
REVOKE ALL ON FUNCTION shardmaster.routing_changed() FROM PUBLIC;
COMMENT ON FUNCTION shardmaster.routing_changed() IS 'makes sessions drop the routes that they keep';

CREATE TRIGGER routing_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON shardmaster.routing_entry
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
CREATE TRIGGER routing_changed AFTER UPDATE OF name, strategy, buckets, key_type OR DELETE OR TRUNCATE ON shardmaster.keyspace
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
CREATE TRIGGER routing_changed
    AFTER UPDATE OF shard_key, status, conninfo, client_conninfo, read_conninfo, namespace OR DELETE OR TRUNCATE ON shardmaster.shard
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
-- Readers go to standbys again once a split has ended.
CREATE TRIGGER routing_changed AFTER UPDATE OF active ON shardmaster.split_key
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
-- Keyspaces of which shards know more than this master are not routed for writing.
CREATE TRIGGER routing_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON shardmaster.shard_decision
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.routing_changed();
-- Also in a session that replays changes.
ALTER TABLE shardmaster.routing_entry ENABLE ALWAYS TRIGGER routing_changed;
ALTER TABLE shardmaster.keyspace ENABLE ALWAYS TRIGGER routing_changed;
ALTER TABLE shardmaster.shard ENABLE ALWAYS TRIGGER routing_changed;

SET LOCAL search_path = @extschema@, pg_temp;
