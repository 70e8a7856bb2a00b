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
'runs one statement on all active shards, or on those that are named, each of them once, as the caller''s login there; so many beside each other as wave says. in_transaction: in a transaction of its own on each shard, which commits once the master has written down that it will; false: without one, for what cannot run in one. timeout: how long each shard is waited for, in all. The first failure ends it, with the shard''s SQLSTATE; shard_execute_resume() goes on. execution_id: gives its number. two_phase: on all shards or on none, in prepared transactions, however it is interrupted; what is left of it the worker ends. by_policies: on the rows that policies of the shards show the login; false: a policy that would hide rows is an error. 22023: a statement that ends transactions; 42501: no login, or a policy would hide rows from it; 55000: two_phase, and a shard may not prepare so many transactions; 55006: a split is under way on a shard';
COMMENT ON PROCEDURE @extschema@.shard_execute_resume(bigint, boolean, interval) IS
'goes on with a statement of shard_execute() where it has not been done, failures included; finds out first what has become of it where that was not heard. A shard that cannot be asked keeps no other one waiting, and is the error at the end; in two phases it goes on once all can. retry: runs it again as well where nobody can know whether it was done. 42501: somebody else''s; 42704: no such execution; 55000: nobody knows whether a shard has done it; 55006: another session carries it out (the worker, which has it for a moment, is waited for)';
COMMENT ON FUNCTION @extschema@.shard_execute_abandon(bigint, boolean, interval) IS
'gives up a statement of shard_execute() where it is not done: splits wait for it no longer. Undoes nothing; one in two phases is settled before, for which each shard is waited for as long as timeout says. force: it is given up also where a shard cannot be told to end its prepared transaction, whose name shard_executions() has. 08006: a shard cannot be reached; 42704: no such execution; 55006: somebody carries it out';
COMMENT ON FUNCTION @extschema@.shard_executions(bigint) IS
'how far statements of shard_execute() are on each shard, one of them or all: waiting, running, prepared (in two phases, and not decided), committing (it is done, or will be found not to be, once it is resumed), done, failed (nothing of it is left, but for one without a transaction), unknown, abandoned; rows: how many it has touched; gid: in two phases the name of its prepared transaction';
COMMENT ON FUNCTION shardmaster.execution_begin(text, text, text[], int, boolean, interval, boolean, boolean) IS
'internal: what shard_execute() writes down first';
COMMENT ON FUNCTION shardmaster.execution_take(bigint, boolean, interval) IS
'internal: takes an execution for the session, and finds out where it is';
COMMENT ON FUNCTION shardmaster.execution_step(bigint, interval) IS
'internal: the next step of an execution, to be committed; false: all is done';

SET LOCAL search_path = @extschema@, pg_temp;
