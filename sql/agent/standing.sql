-- What belongs to this database at all, one row for each namespace and keyspace of which an
-- operator wants other keys refused. All that is decided in the look-up of such a guard; its
-- trigger function is never called.
CREATE TABLE IF NOT EXISTS shardmaster_agent.standing (
    id        int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    namespace text NOT NULL,
    keyspace  text NOT NULL,
    entries   text NOT NULL,
    shard     text NOT NULL,
    version   bigint NOT NULL DEFAULT 0,
    UNIQUE (namespace, keyspace)
);
COMMENT ON TABLE shardmaster_agent.standing IS 'key guards: keys that a namespace has or had are in the table listed_<id>, others are refused';
COMMENT ON COLUMN shardmaster_agent.standing.entries IS 'what the list contains: keys, or buckets or ranges with their number and type';
COMMENT ON COLUMN shardmaster_agent.standing.version IS 'incremented by each change of the list, in the same transaction: a writer with an older snapshot cannot lock this row';

CREATE OR REPLACE FUNCTION shardmaster_agent.standing() RETURNS trigger
LANGUAGE plpgsql AS $agent$
BEGIN
    RETURN NULL;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.standing() IS 'does nothing: the condition of its triggers refuses, or is false';
