-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- As routing_signal, for owners of keys: sessions keep those, too. One that is new was kept by nobody.
CREATE TABLE shardmaster.lookup_signal ();
COMMENT ON TABLE shardmaster.lookup_signal IS 'its invalidation tells sessions that owners of lookup indexes have changed; always empty';
REVOKE ALL ON FUNCTION shardmaster.lookup_changed() FROM PUBLIC;
COMMENT ON FUNCTION shardmaster.lookup_changed() IS 'makes sessions drop the owners that they keep';

-- For each row: a statement that finds none tells nobody.
CREATE TRIGGER lookup_deleted AFTER DELETE ON shardmaster.lookup_entry
    FOR EACH ROW EXECUTE FUNCTION shardmaster.lookup_changed();
CREATE TRIGGER lookup_changed AFTER UPDATE ON shardmaster.lookup_entry
    FOR EACH ROW WHEN ((OLD.lookup, OLD.key, OLD.owner) IS DISTINCT FROM (NEW.lookup, NEW.key, NEW.owner)
                       OR OLD.has_row AND NOT NEW.has_row)
    EXECUTE FUNCTION shardmaster.lookup_changed();
CREATE TRIGGER lookup_truncated AFTER TRUNCATE ON shardmaster.lookup_entry
    FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.lookup_changed();
CREATE TRIGGER lookup_changed AFTER DELETE OR UPDATE OF name, of_keyspace, key_type ON shardmaster.lookup
    FOR EACH ROW EXECUTE FUNCTION shardmaster.lookup_changed();
ALTER TABLE shardmaster.lookup_entry ENABLE ALWAYS TRIGGER lookup_changed;
ALTER TABLE shardmaster.lookup_entry ENABLE ALWAYS TRIGGER lookup_deleted;
ALTER TABLE shardmaster.lookup_entry ENABLE ALWAYS TRIGGER lookup_truncated;
ALTER TABLE shardmaster.lookup ENABLE ALWAYS TRIGGER lookup_changed;

SET LOCAL search_path = @extschema@, pg_temp;
