-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Rows on the wrong shard. Procedures, because what is about to be done is committed on the master before a shard does it, and
-- each batch of rows is known to be done before the next one. No SET clause, which would forbid COMMIT: every name is
-- qualified instead.
CREATE PROCEDURE @extschema@.shard_misplaced_move(
    shard text, keys text[], keyspace text DEFAULT 'default', tables text[] DEFAULT NULL,
    fire_triggers boolean DEFAULT false, timeout interval DEFAULT '10 min', INOUT run_id bigint DEFAULT NULL)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    done pg_catalog.record;
BEGIN
    run_id := shardmaster.misplaced_begin('move'::pg_catalog.text, shard, keys, keyspace, tables, fire_triggers, timeout);
    COMMIT;
    WHILE shardmaster.misplaced_step(run_id) LOOP
        COMMIT;
    END LOOP;
    FOR done IN SELECT r.table_name, r.moved, r.deleted FROM shardmaster.misplaced_runs(run_id) r
                 WHERE r.table_name IS NOT NULL LOOP
        RAISE NOTICE 'table "%": % rows moved, % deleted that were there already', done.table_name, done.moved, done.deleted;
    END LOOP;
END $$;

CREATE PROCEDURE @extschema@.shard_misplaced_delete(
    shard text, keys text[], keyspace text DEFAULT 'default', tables text[] DEFAULT NULL,
    timeout interval DEFAULT '10 min', INOUT run_id bigint DEFAULT NULL, rows text DEFAULT 'on_both')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    done pg_catalog.record;
BEGIN
    run_id := shardmaster.misplaced_begin(pg_catalog.concat('delete_', rows), shard, keys, keyspace, tables, true, timeout);
    COMMIT;
    WHILE shardmaster.misplaced_step(run_id) LOOP
        COMMIT;
    END LOOP;
    FOR done IN SELECT r.table_name, r.deleted FROM shardmaster.misplaced_runs(run_id) r
                 WHERE r.table_name IS NOT NULL LOOP
        RAISE NOTICE 'table "%": % rows deleted', done.table_name, done.deleted;
    END LOOP;
END $$;

COMMENT ON PROCEDURE @extschema@.shard_misplaced_move(text, text[], text, text[], boolean, interval, bigint) IS
'moves the rows of keys that are on a shard which their routes do not name to where these lead, as the caller''s login on both: each is there, committed and written, before it is deleted. tables: those only. fire_triggers: also where triggers of others fire for rows that are deleted. timeout: how long each step may take. What is there already as it is is only deleted. Who keeps writing to them is kept out for the last ones, with all who write to their tables there, which a NOTICE tells. run_id: gives its number, of which a session that goes away leaves the keys held until the same call is made again. 0A000: a table, a trigger or a foreign key by which a row might not arrive; 42501: no login; 55000: a key whose rows are in their place, or which is routed nowhere; 55006: a split, a statement or another run is at it; SM008: a row of the same primary key is there with other content';
COMMENT ON PROCEDURE @extschema@.shard_misplaced_delete(text, text[], text, text[], interval, bigint, text) IS
'deletes the rows of keys that are on a shard which their routes do not name, as the caller''s login there and where they belong. rows: which of them. on_both: all, if the right shard has a row of the same key with each one''s primary key, whatever its content; otherwise none is deleted (55000). conflicting: those whose primary key the right shard has with other content, and no others; shard_misplaced_move() then takes the rest. all: whatever is on other shards, also of keys that are routed nowhere; what is nowhere else is lost. tables, timeout, run_id and errors as of shard_misplaced_move()';
COMMENT ON FUNCTION @extschema@.shard_misplaced_abandon(bigint, boolean, interval) IS
'gives up a call of shard_misplaced_move() or shard_misplaced_delete() whose session is gone: its keys are free again, and the next call takes what it may have left on both shards for rows that were never moved, also if it has ended. Undoes nothing; ends what is left of it on shards, as the caller''s login. force: without asking them. 42704: no such run; 55000: it has ended and left nothing; 55006: somebody carries it out';
COMMENT ON FUNCTION @extschema@.shard_misplaced_runs(bigint) IS
'calls of shard_misplaced_move() and shard_misplaced_delete(), one of them or all, a row for each table: running (it holds its keys, whether its session is there or gone), done, failed, interrupted (another call has taken its place), abandoned; moved, deleted: rows, without those of a batch that an interruption has kept from being counted';
COMMENT ON FUNCTION shardmaster.misplaced_begin(text, text, text[], text, text[], boolean, interval) IS
'internal: holds the keys of shard_misplaced_move() or shard_misplaced_delete() for the session';
COMMENT ON FUNCTION shardmaster.misplaced_step(bigint) IS
'internal: the next step of a run, to be committed; false: all is done';

SET LOCAL search_path = @extschema@, pg_temp;
