-- Which shards refuse rows of keys that they never had, by an operator's word. A row is
-- committed before the shard's list is made, and until the guard is gone from there: whoever
-- routes something to the shard reads it under the keyspace's lock, and tells the shard first.
CREATE TABLE shardmaster.standing_guard (
    shard_key  text NOT NULL REFERENCES shardmaster.shard (shard_key),
    keyspace   text NOT NULL REFERENCES shardmaster.keyspace (name),
    stage      text NOT NULL DEFAULT 'begun' CHECK (stage IN ('begun', 'made', 'listing', 'fitting', 'stands', 'going')),
    listed_to  text,
    tables     text[] NOT NULL DEFAULT '{}',
    apart      text[] NOT NULL DEFAULT '{}',
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    PRIMARY KEY (keyspace, shard_key)
);
COMMENT ON TABLE shardmaster.standing_guard IS 'standing guards of shards: see shard_guard_install()';
COMMENT ON COLUMN shardmaster.standing_guard.stage IS 'begun; made: the shard has an empty list; listing: all routes from before are committed, and are being listed; fitting: the list is whole, triggers are being created; stands; going: it is being removed';
COMMENT ON COLUMN shardmaster.standing_guard.listed_to IS 'the last entry that is on the list, or the last table that has triggers; NULL: none yet';
COMMENT ON COLUMN shardmaster.standing_guard.tables IS 'the tables that have triggers or are to get them, as the keyspace calls them';
COMMENT ON COLUMN shardmaster.standing_guard.apart IS 'connection strings by which another database than the guarded one has answered; an empty one: this very database';
COMMENT ON COLUMN shardmaster.standing_guard.changed_by IS 'the transaction of the last step: the next one is another';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.standing_guard', '');
