
-- Lookup indexes of a master by a column of a table here: one row for each and for each namespace.
CREATE TABLE IF NOT EXISTS shardmaster_agent.lookup (
    id        int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    token     text NOT NULL,
    namespace text NOT NULL,
    name      text NOT NULL,
    announced bigint NOT NULL DEFAULT 0,
    consumed  bigint NOT NULL DEFAULT 0,
    UNIQUE (token, namespace)
);
COMMENT ON TABLE shardmaster_agent.lookup IS 'lookup indexes that capture changes of a column here; the changes are in the table lookup_queue_<id>';
COMMENT ON COLUMN shardmaster_agent.lookup.announced IS 'the step whose changes the master was about to commit';
COMMENT ON COLUMN shardmaster_agent.lookup.consumed IS 'the step whose changes it has committed, so that they were removed from the queue';

CREATE OR REPLACE FUNCTION shardmaster_agent.lookup() RETURNS trigger
LANGUAGE plpgsql AS $agent$
BEGIN
    RETURN NULL;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.lookup() IS 'does nothing: the condition of its triggers queues what has changed, and is false';
