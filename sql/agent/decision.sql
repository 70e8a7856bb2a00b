-- What stays of all splits until shard_drop(): the last decision that this database knows of
-- each namespace and keyspace, beside the master's identity. A master that was restored to a
-- time before it is told by this row, after the redirect has gone, too.
CREATE TABLE IF NOT EXISTS shardmaster_agent.decision (
    namespace  text NOT NULL,
    keyspace   text NOT NULL,
    split_id   bigint NOT NULL,
    token      text NOT NULL,
    side       text NOT NULL CHECK (side IN ('source', 'target')),
    version    bigint NOT NULL,
    other      text NOT NULL,
    entries    text NOT NULL,
    key_count  bigint NOT NULL,
    keys       text[],
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, keyspace)
);
COMMENT ON TABLE shardmaster_agent.decision IS 'the last cutover that this database knows of each namespace and keyspace; stays until the shard is dropped';
COMMENT ON COLUMN shardmaster_agent.decision.side IS 'source: the keys have left this database; target: they have come';
COMMENT ON COLUMN shardmaster_agent.decision.other IS 'the other shard';
COMMENT ON COLUMN shardmaster_agent.decision.keys IS 'entries of routing that moved; NULL: more than are kept here';
