-- What one look-up has in this database: a queue of pairs that may have changed, in their own types, and the function that
-- the WHEN clauses of its triggers call for each of them. As for capture.sql: nothing is left in the writer's session, and
-- all names are qualified.
CREATE TABLE IF NOT EXISTS shardmaster_agent.{queue} (
    xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    key   {key_type} NOT NULL,
    owner {owner_type} NOT NULL
);
-- Once: its lock would wait for whoever has written an entry, and all others behind it.
DO $identity$ BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = 'shardmaster_agent.{queue}'::regclass AND relreplident <> 'f') THEN
        ALTER TABLE shardmaster_agent.{queue} REPLICA IDENTITY FULL;
    END IF;
END $identity$;
CREATE SEQUENCE IF NOT EXISTS shardmaster_agent.{queue}_seq;
SELECT setval('shardmaster_agent.{queue}_seq', 1) FROM shardmaster_agent.{queue}_seq WHERE NOT is_called;

CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(of_key {key_type}, of_owner {owner_type}) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
DECLARE
    of_namespace pg_catalog.text;
    of_keyspace  pg_catalog.text;
BEGIN
    IF of_key IS NULL OR of_owner IS NULL THEN
        RETURN false;
    END IF;
    -- What a split copies its clients have written elsewhere, and are captured there.
    IF pg_catalog.current_setting('shardmaster_agent.mover', true) OPERATOR(pg_catalog.<>) '' THEN
        -- Not as constants, see is_mover.
        of_namespace := {namespace};
        of_keyspace := {keyspace};
        IF shardmaster_agent.is_mover(NULL, of_namespace, of_keyspace) THEN
            RETURN false;
        END IF;
    END IF;
    -- Full: whoever finds it so is not queued, and the look-up is filled again. The writer does not fail because of it.
    IF pg_catalog.pg_sequence_last_value('shardmaster_agent.{queue}_seq'::pg_catalog.regclass) OPERATOR(pg_catalog.>) 1 THEN
        RETURN false;
    END IF;
    INSERT INTO shardmaster_agent.{queue} (key, owner) VALUES (of_key, of_owner);
    IF pg_catalog.date_part('microseconds', pg_catalog.clock_timestamp())::pg_catalog.int8
           OPERATOR(pg_catalog.%) {sample} OPERATOR(pg_catalog.=) 0 THEN
        IF pg_catalog.pg_relation_size('shardmaster_agent.{queue}'::pg_catalog.regclass, 'main') OPERATOR(pg_catalog.>=) {max_bytes} THEN
            PERFORM pg_catalog.setval('shardmaster_agent.{queue}_seq'::pg_catalog.regclass, 2);
        END IF;
    END IF;
    RETURN false;
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}({key_type}, {owner_type}) TO PUBLIC;
