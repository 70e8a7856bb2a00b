-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Decided cutovers that shards know and this master did not when it asked them: it was restored,
-- or promoted, to a time before. Not dumped: a restored master asks its own shards.
CREATE TABLE shardmaster.shard_decision (
    shard_key  text NOT NULL REFERENCES shardmaster.shard (shard_key) ON UPDATE CASCADE ON DELETE CASCADE,
    split_id   bigint NOT NULL,
    token      text NOT NULL,
    keyspace   text NOT NULL,
    version    bigint NOT NULL,
    side       text NOT NULL CHECK (side IN ('source', 'target', 'neither')),
    from_shard text NOT NULL,
    to_shard   text NOT NULL,
    entries    text NOT NULL,
    said_by    text NOT NULL CHECK (said_by IN ('redirect', 'side', 'note', 'earlier')),
    key_count  bigint NOT NULL,
    keys       text[],
    keyspace_made bigint,
    tables     text[],
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_key, token, split_id)
);
CREATE INDEX shard_decision_keyspace ON shardmaster.shard_decision (keyspace);
COMMENT ON TABLE shardmaster.shard_decision IS 'decided cutovers that a shard records and this master did not know when it asked; not dumped';
COMMENT ON COLUMN shardmaster.shard_decision.said_by IS 'where the shard records it: a redirect, the state of a side, the record of the last cutover, or what that one says of those before it';
COMMENT ON COLUMN shardmaster.shard_decision.entries IS 'what the entries are: keys, or buckets or ranges with their number and type';
COMMENT ON COLUMN shardmaster.shard_decision.keys IS 'entries of routing that moved; NULL: the shard no longer knows them';
COMMENT ON COLUMN shardmaster.shard_decision.keyspace_made IS 'when their keyspace was made, in microseconds since 1970; NULL: the shard does not know it';
COMMENT ON COLUMN shardmaster.shard_decision.tables IS 'its tables then, as the master named them; NULL: the shard does not know them';

-- Those that shard_adopt() has taken over: no plan stands for them here.
CREATE TABLE shardmaster.adopted_decision (
    token      text NOT NULL,
    split_id   bigint NOT NULL,
    keyspace   text NOT NULL,
    version    bigint NOT NULL,
    from_shard text,
    to_shard   text,
    key_count  bigint NOT NULL DEFAULT 0,
    keys       text[],
    routes_kept boolean NOT NULL DEFAULT false,
    adopted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (token, split_id)
);
COMMENT ON TABLE shardmaster.adopted_decision IS 'decided cutovers that shard_adopt() has adopted from shards';
COMMENT ON COLUMN shardmaster.adopted_decision.keys IS 'entries of routing that moved; NULL: no shard knew them any more';
COMMENT ON COLUMN shardmaster.adopted_decision.routes_kept IS 'the operator has decided that their routes stay as they were';
CREATE INDEX adopted_decision_version ON shardmaster.adopted_decision (keyspace, version);
CREATE INDEX split_plan_cutover ON shardmaster.split_plan (keyspace, routing_version_cutover) WHERE phase = 'completed';

-- Where somebody else moves its rows, or it did not answer, it is asked again. Not dumped.
CREATE TABLE shardmaster.shard_asked (
    shard_key text PRIMARY KEY REFERENCES shardmaster.shard (shard_key) ON UPDATE CASCADE ON DELETE CASCADE,
    run       text,
    asked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem   text
);
COMMENT ON TABLE shardmaster.shard_asked IS 'when each shard was last asked which decisions it records; not dumped';
COMMENT ON COLUMN shardmaster.shard_asked.run IS 'the run of this server in which it has answered';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.adopted_decision', '');

-- As of now: a worker that takes a split up may have taken its decision over meanwhile. One that is
-- about to is waited for by clients of what moves alone, whom the source sends away itself. The word
-- of a shard that was disabled counts no more.
CREATE VIEW shardmaster.lost_decision AS
    SELECT d.* FROM shardmaster.shard_decision d JOIN shardmaster.shard known ON known.shard_key = d.shard_key
     WHERE known.status <> 'disabled'
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p
                        WHERE p.id = d.split_id AND p.token = d.token AND p.phase = 'completed')
       AND NOT EXISTS (SELECT FROM shardmaster.adopted_decision a
                        WHERE a.token = d.token AND a.split_id = d.split_id)
       -- What was taken back moves nothing any more.
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p JOIN shardmaster.split_plan back ON back.reverse_of = p.id
                        WHERE p.id = d.split_id AND p.token = d.token AND back.phase = 'completed')
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan p JOIN shardmaster.shard_decision s
                               ON s.split_id = p.id AND s.token = p.token AND s.side = 'source' AND s.said_by IN ('redirect', 'side')
                        WHERE p.id = d.split_id AND p.token = d.token AND p.finished_at IS NULL
                          AND p.phase <> 'rolled_back' AND p.activity NOT IN ('failed', 'paused')
                          -- One that has installed nothing takes nothing over: it would begin anew. A reverse split was installed by its split.
                          AND NOT (p.phase = 'planning' AND (p.goal = 'planning' OR p.reverse_of IS NULL)));
COMMENT ON VIEW shardmaster.lost_decision IS 'decided cutovers that shards record and this master does not know: their keyspaces are not routed for writing';

SET LOCAL search_path = @extschema@, pg_temp;
