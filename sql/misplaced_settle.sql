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
        RAISE NOTICE 'table "%": % rows moved, % deleted that were already there', done.table_name, done.moved, done.deleted;
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
'moves rows that are on another shard than their keys are routed to, to the right shard, with the caller''s login on both: each row is committed there before it is deleted here. tables: only those. fire_triggers: also if triggers of others fire for deleted rows. timeout: how long each step may take. Rows that are already there and the same are only deleted. For the last rows, clients that write to their tables there wait, as a NOTICE reports. run_id: returns its number; the keys of a session that has ended stay held until the same call is made again. Example: CALL shard_misplaced_move(''a'', ''{42}''). 0A000: a table, a trigger or a foreign key because of which a row might not arrive; 42501: no login; 55000: a key whose rows are on the right shard, or which has no route; 55006: a split, a statement or another run uses the keys; SM008: a row with the same primary key is there with other content';
COMMENT ON PROCEDURE @extschema@.shard_misplaced_delete(text, text[], text, text[], interval, bigint, text) IS
'deletes rows of keys that are on another shard than they are routed to, with the caller''s login on both. rows: "on_both", all, if the right shard has a row of the same key with each one''s primary key, and otherwise none (55000); "conflicting", only those whose primary key the right shard has with other content, after which shard_misplaced_move() takes the rest; "all", also of keys without a route, where rows that exist nowhere else are lost. tables, timeout, run_id and errors as of shard_misplaced_move(). Example: CALL shard_misplaced_delete(''a'', ''{42}'')';
COMMENT ON FUNCTION @extschema@.shard_misplaced_abandon(bigint, boolean, interval) IS
'abandons a call of shard_misplaced_move() or shard_misplaced_delete() whose session has ended. Its keys are free again, and the next call treats what may be left on both shards as rows that were never moved. Undoes nothing; ends its sessions on shards, with the caller''s login. force: without asking the shards. Example: SELECT shard_misplaced_abandon(3). 42704: no such run; 55000: it has ended and left nothing; 55006: another session is working on it';
COMMENT ON FUNCTION @extschema@.shard_misplaced_runs(bigint) IS
'calls of shard_misplaced_move() and shard_misplaced_delete(), one of them or all, a row for each table. state: running (it holds its keys), done, failed, interrupted (another call has taken its place) or abandoned. moved: rows, without those of a batch that was interrupted before it was counted. Example: SELECT * FROM shard_misplaced_runs()';
COMMENT ON FUNCTION shardmaster.misplaced_begin(text, text, text[], text, text[], boolean, interval) IS
'internal: holds the keys of shard_misplaced_move() or shard_misplaced_delete() for the session';
COMMENT ON FUNCTION shardmaster.misplaced_step(bigint) IS
'internal: the next step of a run, to be committed; false: all is done';

SET LOCAL search_path = @extschema@, pg_temp;
