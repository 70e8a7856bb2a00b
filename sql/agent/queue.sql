-- The queue of one captured table: keys of changed rows in their own types, never
-- as text, because the writer's DateStyle and extra_float_digits would change them.
-- It has no primary key, for which a writer would have to draw numbers; that it can be
-- published all the same (FOR ALL TABLES), whole rows identify it.
CREATE TABLE IF NOT EXISTS shardmaster_agent.{queue} (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    op  "char" NOT NULL,
    {key_definitions}
);
CREATE INDEX IF NOT EXISTS {queue}_xid ON shardmaster_agent.{queue} (xid);
ALTER TABLE shardmaster_agent.{queue} REPLICA IDENTITY FULL;
