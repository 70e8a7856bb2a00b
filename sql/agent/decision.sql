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
    earlier    jsonb,
    keyspace_made bigint,
    tables     text[],
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, keyspace)
);
-- Made by a version that kept less.
DO $agent$
BEGIN
    IF (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a
         WHERE a.attrelid OPERATOR(pg_catalog.=) 'shardmaster_agent.decision'::pg_catalog.regclass
           AND a.attname OPERATOR(pg_catalog.=) ANY (ARRAY['earlier', 'keyspace_made', 'tables']::pg_catalog.name[]) AND NOT a.attisdropped) OPERATOR(pg_catalog.<) 3 THEN
        ALTER TABLE shardmaster_agent.decision ADD COLUMN IF NOT EXISTS earlier jsonb, ADD COLUMN IF NOT EXISTS keyspace_made bigint,
            ADD COLUMN IF NOT EXISTS tables text[];
    END IF;
    -- Room for the first row: on a full disk, a decided cutover could not open its target.
    IF pg_catalog.pg_relation_size('shardmaster_agent.decision') OPERATOR(pg_catalog.=) 0 THEN
        INSERT INTO shardmaster_agent.decision (namespace, keyspace, split_id, token, side, version, other, entries, key_count)
        VALUES ('', '', 0, '', 'source', 0, '', '', 0) ON CONFLICT DO NOTHING;
        DELETE FROM shardmaster_agent.decision WHERE split_id OPERATOR(pg_catalog.=) 0;
    END IF;
END $agent$;
COMMENT ON TABLE shardmaster_agent.decision IS 'the last cutover that this database knows of each namespace and keyspace; stays until the shard is dropped';
COMMENT ON COLUMN shardmaster_agent.decision.side IS 'source: the keys have left this database; target: they have arrived';
COMMENT ON COLUMN shardmaster_agent.decision.other IS 'the other shard';
COMMENT ON COLUMN shardmaster_agent.decision.keys IS 'entries of routing that moved; NULL: more than are kept here';
COMMENT ON COLUMN shardmaster_agent.decision.earlier IS 'the cutovers of the keyspace before that one, of any shards, newest first: at most 51, the last of them without keys; NULL: not known';
COMMENT ON COLUMN shardmaster_agent.decision.keyspace_made IS 'when the master made the keyspace, in microseconds since 1970: another keyspace of this name has another moment; NULL: not known';
COMMENT ON COLUMN shardmaster_agent.decision.tables IS 'tables of the keyspace whose rows moved, as the master names them; NULL: not known';
