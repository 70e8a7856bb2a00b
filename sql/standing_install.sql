-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Key guards. Procedures, because each step is committed on the master before the next one
-- is done on the shard. No SET clause, which would forbid COMMIT: every name is qualified instead.
CREATE PROCEDURE @extschema@.shard_guard_install(shard_key text, keyspace text DEFAULT 'default')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.guard_begin(shard_key, keyspace, false, false);
    COMMIT;
    WHILE shardmaster.guard_step(shard_key, keyspace, false) LOOP
        COMMIT;
    END LOOP;
END $$;

CREATE PROCEDURE @extschema@.shard_guard_remove(shard_key text, keyspace text DEFAULT 'default', force boolean DEFAULT false)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.guard_begin(shard_key, keyspace, true, force);
    COMMIT;
    IF force THEN
        RETURN;
    END IF;
    WHILE shardmaster.guard_step(shard_key, keyspace, true) LOOP
        COMMIT;
    END LOOP;
END $$;

COMMENT ON PROCEDURE @extschema@.shard_guard_install(text, text) IS
'makes a shard refuse rows of keys that it never had (SM001): triggers on its tables of the keyspace look the key up in a list of the keys routed there. Every assignment and cutover adds to that list before a route leads there. Existing rows stay, and can be changed and deleted. Call it again after an interruption, a restore of the shard, or a new table. Example: CALL shard_guard_install(''a'', ''default''). 0A000: a table that does not exist, that others inherit from, that another shard has as well, or whose keys cannot be looked up; 55000: a shard of another master, a keyspace without tables, or another call is removing it';
COMMENT ON PROCEDURE @extschema@.shard_guard_remove(text, text, boolean) IS
'removes what shard_guard_install() has made. force: the shard is not asked, also not by assignments. What is left of the guard there then refuses new keys until shard_cleanup() removes it; shard_guards() shows it as left. Example: CALL shard_guard_remove(''a'', ''default''). 42704: there is none; 55000: another call is installing it';
COMMENT ON FUNCTION shardmaster.guard_begin(text, text, boolean, boolean) IS
'internal: records that shard_guard_install() or shard_guard_remove() has begun';
COMMENT ON FUNCTION shardmaster.guard_step(text, text, boolean) IS
'internal: the next step of a guard that comes or goes, to be committed; false: all is done. 55000: another call has begun the opposite';

SET LOCAL search_path = @extschema@, pg_temp;
