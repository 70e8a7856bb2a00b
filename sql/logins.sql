-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- As whom a role of this database is connected to the shards, for what it asks all of them.

CREATE TABLE shardmaster.shard_login (
    role             regrole NOT NULL,
    -- NULL: all shards for which nothing else is said.
    shard_id         bigint REFERENCES shardmaster.shard (id) ON DELETE CASCADE,
    username         text NOT NULL CHECK (username <> ''),
    credential_alias text REFERENCES shardmaster.keychain (alias),
    set_by           text NOT NULL,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX shard_login_key ON shardmaster.shard_login (role, coalesce(shard_id, 0));
CREATE INDEX shard_login_credential ON shardmaster.shard_login (credential_alias);
COMMENT ON TABLE shardmaster.shard_login IS 'the logins with which shard_query() connects roles to the shards: never as the mover; see shard_logins()';
COMMENT ON COLUMN shardmaster.shard_login.role IS 'the role that asks: the role itself, or one whose rights it has';
COMMENT ON COLUMN shardmaster.shard_login.username IS 'the role on the shard';
COMMENT ON COLUMN shardmaster.shard_login.credential_alias IS 'its credential; NULL: by what the server''s operating-system user has';

-- A dump has roles by their names, but those that are gone by their numbers, which are somebody else's where it is restored.
SELECT pg_catalog.pg_extension_config_dump('shardmaster.shard_login', 'WHERE role IN (SELECT oid FROM pg_catalog.pg_roles)');

SET LOCAL search_path = @extschema@, pg_temp;
