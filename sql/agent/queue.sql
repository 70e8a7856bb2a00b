-- The queue of one captured table: keys of changed rows in their own types, never
-- as text, because the writer's DateStyle and extra_float_digits would change them.
CREATE TABLE IF NOT EXISTS shardmaster_agent.{queue} (
    seq bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    op  "char" NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    {key_definitions},
    PRIMARY KEY (xid, seq)
);
