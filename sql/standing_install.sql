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
'from now on the shard refuses rows of keys that it never had (SM001): triggers on its tables of the keyspace look into a list of what is routed there, which every assignment and cutover adds to before a route leads there. Rows that are there already stay, and may be changed and deleted. Called again, it goes through all of it again, after an interruption, a shard that was restored, or a new table. 0A000: a table that is not there, that others inherit from, that another shard has as well, or whose keys cannot be looked up; 55000: a shard of another master, a keyspace without tables, another call is removing it';
COMMENT ON PROCEDURE @extschema@.shard_guard_remove(text, text, boolean) IS
'takes away what shard_guard_install() has made. force: the shard is not asked, and assignments do not ask it any more: what is left of the guard there refuses what is new to it, until shard_cleanup() has removed it; shard_guards() lists it as left. 42704: there is none; 55000: another call is installing it';
COMMENT ON FUNCTION shardmaster.guard_begin(text, text, boolean, boolean) IS
'internal: writes down that shard_guard_install() or shard_guard_remove() has begun';
COMMENT ON FUNCTION shardmaster.guard_step(text, text, boolean) IS
'internal: the next step of a guard that comes or goes, to be committed; false: all is done. 55000: another call has begun the opposite';

SET LOCAL search_path = @extschema@, pg_temp;
