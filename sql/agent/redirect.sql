-- What has left this database for good, one row for each namespace and keyspace. All that
-- is decided in the look-up of a redirect; its trigger function is never called.
CREATE TABLE IF NOT EXISTS shardmaster_agent.redirect (
    id        int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    namespace text NOT NULL,
    keyspace  text NOT NULL,
    entries   text NOT NULL,
    version   bigint NOT NULL DEFAULT 0,
    UNIQUE (namespace, keyspace, entries)
);
COMMENT ON TABLE shardmaster_agent.redirect IS 'redirects of keys that have left a namespace; the keys are in the table left_<id>';
COMMENT ON COLUMN shardmaster_agent.redirect.entries IS 'what the entries are: keys, or buckets or ranges with their number and type';
COMMENT ON COLUMN shardmaster_agent.redirect.version IS 'the version of the lookup function''s text: a transaction that reads another one is older than the text';

CREATE OR REPLACE FUNCTION shardmaster_agent.redirect() RETURNS trigger
LANGUAGE plpgsql AS $agent$
BEGIN
    RETURN NULL;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.redirect() IS 'does nothing: the condition of its triggers refuses, or is false';
