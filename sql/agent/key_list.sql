-- The lists of key guards, one row for each. What is on a list with mode deny has left this
-- database for good: a redirect. Of a list with mode allow all other keys are refused. All
-- that is decided in the lookup function of a list; its trigger function is never called.
CREATE TABLE IF NOT EXISTS shardmaster_agent.key_list (
    id        int GENERATED ALWAYS AS IDENTITY,
    mode      text NOT NULL CHECK (mode IN ('deny', 'allow')),
    namespace text NOT NULL,
    keyspace  text NOT NULL,
    entries   text NOT NULL,
    shard     text NOT NULL,
    version   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (mode, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS key_list_deny ON shardmaster_agent.key_list (namespace, keyspace, entries) WHERE mode = 'deny';
CREATE UNIQUE INDEX IF NOT EXISTS key_list_allow ON shardmaster_agent.key_list (namespace, keyspace) WHERE mode = 'allow';
COMMENT ON TABLE shardmaster_agent.key_list IS 'lists by which keys are refused: deny, of keys that have left a namespace, in the table left_<id>; allow, of keys that it has or had, in the table listed_<id>';
COMMENT ON COLUMN shardmaster_agent.key_list.entries IS 'what the entries are: keys, or buckets or ranges with their number and type';
COMMENT ON COLUMN shardmaster_agent.key_list.shard IS 'the name of the shard on its master when the list was made; empty for one of version 0.1';
COMMENT ON COLUMN shardmaster_agent.key_list.version IS 'of a list with mode deny, the version of its lookup function''s text: a transaction that reads another one is older than the text. Otherwise incremented by each change of the list: a writer with an older snapshot cannot lock this row';

CREATE OR REPLACE FUNCTION shardmaster_agent.key_guard() RETURNS trigger
LANGUAGE plpgsql AS $agent$
BEGIN
    RETURN NULL;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.key_guard() IS 'does nothing: the condition of its triggers refuses, or is false';

-- Version 0.1 had a table for each mode. Their rows come here, with the functions that read
-- them. The tables stay, empty, until the schema goes: to drop one would wait for whoever has
-- read it, and others would wait behind.
DO $agent$
DECLARE
    definition text;
BEGIN
    IF to_regclass('shardmaster_agent.redirect') IS NOT NULL THEN
        WITH gone AS (DELETE FROM shardmaster_agent.redirect RETURNING *)
        INSERT INTO shardmaster_agent.key_list (id, mode, namespace, keyspace, entries, shard, version) OVERRIDING SYSTEM VALUE
        SELECT id, 'deny', namespace, keyspace, entries, '', version FROM gone;
    END IF;
    IF to_regclass('shardmaster_agent.standing') IS NOT NULL THEN
        WITH gone AS (DELETE FROM shardmaster_agent.standing RETURNING *)
        INSERT INTO shardmaster_agent.key_list (id, mode, namespace, keyspace, entries, shard, version) OVERRIDING SYSTEM VALUE
        SELECT id, 'allow', namespace, keyspace, entries, shard, version FROM gone;
    END IF;
    FOR definition IN
        SELECT regexp_replace(regexp_replace(pg_get_functiondef(p.oid),
                   '\mshardmaster_agent\.redirect\M',
                   '(SELECT id, version FROM shardmaster_agent.key_list WHERE mode OPERATOR(pg_catalog.=) ''deny'')'),
                   '\mshardmaster_agent\.standing\M',
                   '(SELECT id, version FROM shardmaster_agent.key_list WHERE mode OPERATOR(pg_catalog.=) ''allow'')')
          FROM pg_proc p
         WHERE p.pronamespace = 'shardmaster_agent'::regnamespace
           AND p.prosrc ~ '\mshardmaster_agent\.(redirect|standing)\M'
    LOOP
        EXECUTE definition;
    END LOOP;
    -- Their numbers are not given out again, whether they have functions yet or not.
    PERFORM setval('shardmaster_agent.key_list_id_seq', greatest(max(l.id), max(q.last_value)))
       FROM shardmaster_agent.key_list l CROSS JOIN shardmaster_agent.key_list_id_seq q
     WHERE l.id > q.last_value OR NOT q.is_called;
END $agent$;
