-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Lookup indexes: by which value of another column the key of a keyspace is found.

CREATE TABLE shardmaster.lookup (
    name        text PRIMARY KEY CHECK (name <> ''),
    of_keyspace text NOT NULL REFERENCES shardmaster.keyspace (name),
    key_type    text NOT NULL,
    table_name  text,
    column_name text,
    named_by    text,
    token       uuid,
    epoch       bigint NOT NULL DEFAULT 1,
    swept       bigint NOT NULL DEFAULT 1,
    CHECK (num_nulls(table_name, column_name, named_by, token) IN (0, 4))
);
COMMENT ON TABLE shardmaster.lookup IS 'keyspaces of the strategy "lookup": their keys lead to a key of another keyspace, their owner';
COMMENT ON COLUMN shardmaster.lookup.table_name IS 'its name in the table policy of the other keyspace; NULL: no table was added yet';
COMMENT ON COLUMN shardmaster.lookup.token IS 'identifies on shards what captures changes of the column there';
COMMENT ON COLUMN shardmaster.lookup.epoch IS 'counts how often changes of a shard may have been missed';
COMMENT ON COLUMN shardmaster.lookup.swept IS 'the epoch up to which all pairs were checked again since';

CREATE TABLE shardmaster.lookup_entry (
    lookup        text NOT NULL REFERENCES shardmaster.lookup (name),
    key           text NOT NULL,
    owner         text NOT NULL,
    has_row       boolean NOT NULL,
    claimed_until timestamptz,
    epoch         bigint NOT NULL,
    PRIMARY KEY (key, lookup)
);
CREATE INDEX lookup_entry_owner ON shardmaster.lookup_entry (owner, lookup, key COLLATE "C");
CREATE INDEX lookup_entry_claim ON shardmaster.lookup_entry (claimed_until) WHERE NOT has_row;
COMMENT ON TABLE shardmaster.lookup_entry IS 'the owner of each key of a lookup index: by a row of its shard, or claimed until such a row arrives';
COMMENT ON COLUMN shardmaster.lookup_entry.epoch IS 'in which epoch the owner''s shard was last asked for the row';

-- What more than one owner has: the first one is in lookup_entry.
CREATE TABLE shardmaster.lookup_conflict (
    lookup   text NOT NULL REFERENCES shardmaster.lookup (name),
    key      text NOT NULL,
    owner    text NOT NULL,
    found_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch    bigint NOT NULL,
    PRIMARY KEY (key, lookup, owner)
);
CREATE INDEX lookup_conflict_owner ON shardmaster.lookup_conflict (owner, lookup, key COLLATE "C");
COMMENT ON TABLE shardmaster.lookup_conflict IS 'owners of keys of a lookup index that lead to another owner: see shard_lookup_conflicts()';

-- How far it is with each shard. Not dumped: a restored copy has missed what came since, and fills again.
CREATE TABLE shardmaster.lookup_shard (
    lookup        text NOT NULL REFERENCES shardmaster.lookup (name) ON DELETE CASCADE,
    shard_key     text NOT NULL REFERENCES shardmaster.shard (shard_key) ON DELETE CASCADE,
    state         text NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'filling', 'filled')),
    steps         bigint NOT NULL DEFAULT 0,
    place         text,
    shape         text,
    waiting       bigint NOT NULL DEFAULT 0,
    lag           interval,
    looked_at     timestamptz,
    error_code    text,
    error_message text,
    PRIMARY KEY (lookup, shard_key)
);
COMMENT ON TABLE shardmaster.lookup_shard IS 'how far each lookup index is with each shard; see shard_lookups()';
COMMENT ON COLUMN shardmaster.lookup_shard.steps IS 'how often changes were taken from the shard; the shard counts as well';
COMMENT ON COLUMN shardmaster.lookup_shard.place IS 'the running server that the pairs are of: its system identifier and timeline';
COMMENT ON COLUMN shardmaster.lookup_shard.shape IS 'the table, its partitions, their files and triggers that the pairs are of';

-- What was taken out of a lookup index, and is to be taken away on the shards.
CREATE TABLE shardmaster.lookup_removal (
    token         uuid NOT NULL,
    lookup        text NOT NULL,
    shard_key     text NOT NULL REFERENCES shardmaster.shard (shard_key) ON DELETE CASCADE,
    error_message text,
    PRIMARY KEY (token, shard_key)
);
COMMENT ON TABLE shardmaster.lookup_removal IS 'shards on which something of a former lookup index is left';

-- Keys that were assigned: their rows may have been where they are routed to now before anybody looked there. Those that a
-- split moves, too: the fill of the shard that they leave, or its queue, may not have come to them.
CREATE TABLE shardmaster.lookup_assigned (
    id     bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    lookup text NOT NULL REFERENCES shardmaster.lookup (name) ON DELETE CASCADE,
    entry  text NOT NULL
);
CREATE INDEX lookup_assigned_lookup ON shardmaster.lookup_assigned (lookup, id);
COMMENT ON TABLE shardmaster.lookup_assigned IS 'entries of routing that were assigned or removed, and whose rows are to be checked for a lookup index';

CREATE FUNCTION shardmaster.lookup_assigned() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO shardmaster.lookup_assigned (lookup, entry)
    SELECT l.name, e.key
      FROM changed e
      JOIN shardmaster.lookup l ON l.of_keyspace = e.keyspace AND l.token IS NOT NULL
     WHERE TG_OP = 'INSERT' OR e.valid_to IS NOT NULL;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION shardmaster.lookup_assigned() FROM PUBLIC;
COMMENT ON FUNCTION shardmaster.lookup_assigned() IS 'internal: requests a check of the rows of assigned keys for lookup indexes';
CREATE TRIGGER lookup_assigned AFTER INSERT ON shardmaster.routing_entry
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.lookup_assigned();
CREATE TRIGGER lookup_unassigned AFTER UPDATE ON shardmaster.routing_entry
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.lookup_assigned();
ALTER TABLE shardmaster.routing_entry ENABLE ALWAYS TRIGGER lookup_assigned;
ALTER TABLE shardmaster.routing_entry ENABLE ALWAYS TRIGGER lookup_unassigned;

SELECT pg_catalog.pg_extension_config_dump('shardmaster.lookup', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.lookup_entry', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.lookup_conflict', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.lookup_removal', '');

SET LOCAL search_path = @extschema@, pg_temp;
