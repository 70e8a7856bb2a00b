-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Which shards refuse rows of keys that they never had, by an operator's word. A row is
-- committed before the shard's list is made, and until the guard is gone from there: whoever
-- routes something to the shard reads it under the keyspace's lock, and tells the shard first. One
-- that was given up is kept as well, since the shard may go on refusing: nobody tells it.
CREATE TABLE shardmaster.standing_guard (
    shard_key  text NOT NULL REFERENCES shardmaster.shard (shard_key),
    keyspace   text NOT NULL REFERENCES shardmaster.keyspace (name),
    stage      text NOT NULL DEFAULT 'begun' CHECK (stage IN ('begun', 'made', 'listing', 'fitting', 'stands', 'going', 'left')),
    listed_to  text,
    tables     text[] NOT NULL DEFAULT '{}',
    apart      text[] NOT NULL DEFAULT '{}',
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    PRIMARY KEY (keyspace, shard_key)
);
COMMENT ON TABLE shardmaster.standing_guard IS 'key guards of shards: see shard_guard_install()';
COMMENT ON COLUMN shardmaster.standing_guard.stage IS 'begun; made: the shard has an empty list; listing: all earlier routes are committed, and are being listed; fitting: the list is complete, triggers are being created; stands; going: it is being removed; left: removed by force, without the shard, which may still have it';
COMMENT ON COLUMN shardmaster.standing_guard.listed_to IS 'the last entry that is on the list, or the last table that has triggers; NULL: none yet';
COMMENT ON COLUMN shardmaster.standing_guard.tables IS 'the tables that have triggers or will get them, by their names in the keyspace';
COMMENT ON COLUMN shardmaster.standing_guard.apart IS 'connection strings that led to another database than the guarded one; an empty one: this database';
COMMENT ON COLUMN shardmaster.standing_guard.changed_by IS 'the transaction of the last step: the next one is another';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.standing_guard', '');

CREATE VIEW shardmaster.shard_guard AS
SELECT g.shard_key, g.keyspace,
       CASE WHEN g.stage = 'going' THEN 'removing'
            WHEN g.stage = 'left' THEN 'left'
            WHEN g.stage <> 'stands' THEN 'installing'
            WHEN n.tables IS NOT NULL THEN 'partial'
            ELSE 'guarded' END AS state,
       g.since,
       (SELECT count(*) FROM shardmaster.routing_entry e
         WHERE e.keyspace = g.keyspace AND e.valid_to IS NULL AND g.shard_key IN (e.read_shard, e.write_shard)) AS keys,
       g.tables, coalesce(n.tables, '{}') AS not_guarded
  FROM shardmaster.standing_guard g CROSS JOIN LATERAL (
       SELECT array_agg(t.table_name ORDER BY t.table_name) AS tables FROM shardmaster.table_policy t
        WHERE t.keyspace = g.keyspace AND t.policy = 'sharded' AND t.table_name <> ALL (g.tables)) n;
COMMENT ON VIEW shardmaster.shard_guard IS 'key guards, as this master knows them. state: installing; guarded; partial; removing; left: removed by shard_guard_remove(.., force => true), so that the shard may refuse keys until shard_cleanup(). keys: entries that are routed there. tables: those that have triggers or will get them; not_guarded: those of the keyspace that shard_guard_install() has not seen yet';

SET LOCAL search_path = @extschema@, pg_temp;
