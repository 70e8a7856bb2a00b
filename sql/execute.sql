-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- One statement on all shards. Procedures, because each step is committed on the master before the next one begins on
-- the shards. No SET clause, which would forbid COMMIT: every name is qualified instead.
CREATE PROCEDURE @extschema@.shard_execute(
    sql text, keyspace text DEFAULT 'default', shards text[] DEFAULT NULL, wave int DEFAULT 1,
    in_transaction boolean DEFAULT true, timeout interval DEFAULT '10 min', INOUT execution_id bigint DEFAULT NULL,
    two_phase boolean DEFAULT false, by_policies boolean DEFAULT false)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    execution_id := shardmaster.execution_begin(sql, keyspace, shards, wave, in_transaction, timeout, two_phase, by_policies);
    COMMIT;
    CALL shardmaster.execute_resume(execution_id, false, timeout);
END $$;

CREATE PROCEDURE shardmaster.execute_resume(execution_id bigint, retry boolean, timeout interval)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM shardmaster.execution_take(execution_id, retry, timeout);
    COMMIT;
    WHILE shardmaster.execution_step(execution_id, timeout) LOOP
        COMMIT;
    END LOOP;
END $$;
COMMENT ON PROCEDURE shardmaster.execute_resume(bigint, boolean, interval) IS
'internal: carries out what shard_execute() has written down';

CREATE PROCEDURE @extschema@.shard_execute_resume(
    execution_id bigint, retry boolean DEFAULT false, timeout interval DEFAULT '10 min')
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    CALL shardmaster.execute_resume(execution_id, retry, timeout);
END $$;

COMMENT ON PROCEDURE @extschema@.shard_execute(text, text, text[], int, boolean, interval, bigint, boolean, boolean) IS
'runs one statement once on each active shard, or on each named one, with the caller''s login there. wave: on how many shards at a time. in_transaction: in a transaction on each shard, which commits once the master has recorded that it will; false: without one, for what cannot run in one. timeout: how long each shard may take, in all. The first failure ends it, with the shard''s SQLSTATE; shard_execute_resume() continues it. execution_id: returns its number. two_phase: on all shards or on none, in prepared transactions, also after an interruption; the worker ends what is left. by_policies: on the rows that policies of the shards show the login; false: a policy that would hide rows is an error. Example: CALL shard_execute(''CREATE INDEX ON orders (placed_at)''). 22023: a statement that ends transactions; 42501: no login, or a policy would hide rows from it; 55000: two_phase, and a shard cannot prepare so many transactions; 55006: a split is active on a shard';
COMMENT ON PROCEDURE @extschema@.shard_execute_resume(bigint, boolean, interval) IS
'continues a statement of shard_execute() on the shards where it is not done, failed ones included, after it has found out the outcome where that is unknown. A shard that cannot be asked does not delay others, and is the error at the end; in two phases the call needs all shards. retry: runs it again also where the outcome cannot be known. Example: CALL shard_execute_resume(7). 42501: it belongs to another role; 42704: no such execution; 55000: nobody knows whether a shard has done it; 55006: another session is running it (for the worker, which has it for a moment, the call waits)';
COMMENT ON FUNCTION @extschema@.shard_execute_abandon(bigint, boolean, interval) IS
'abandons a statement of shard_execute() where it is not done, so that splits no longer wait for it. Undoes nothing. A statement in two phases is ended first, for which each shard may take as long as timeout. force: abandons it also if a shard cannot be told to end its prepared transaction, whose name is in shard_executions(). Example: SELECT shard_execute_abandon(7). 08006: a shard cannot be reached; 42704: no such execution; 55006: another session is running it';
COMMENT ON FUNCTION @extschema@.shard_executions(bigint) IS
'the progress of statements of shard_execute() on each shard, of one or of all. state: waiting, running, prepared (in two phases, not decided), committing (it is done, or the next resume finds that it is not), done, failed (nothing of it is left, unless it ran without a transaction), unknown, abandoned. rows: how many it changed. gid: the name of its prepared transaction. Example: SELECT * FROM shard_executions()';
COMMENT ON FUNCTION shardmaster.execution_begin(text, text, text[], int, boolean, interval, boolean, boolean) IS
'internal: what shard_execute() records first';
COMMENT ON FUNCTION shardmaster.execution_take(bigint, boolean, interval) IS
'internal: takes an execution for the session, and finds out its state';
COMMENT ON FUNCTION shardmaster.execution_step(bigint, interval) IS
'internal: the next step of an execution, to be committed; false: all is done';

SET LOCAL search_path = @extschema@, pg_temp;
