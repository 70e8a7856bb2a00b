-- What every shard holds while splits touch it. Safe to repeat.
CREATE SCHEMA IF NOT EXISTS shardmaster_agent;
CREATE TABLE IF NOT EXISTS shardmaster_agent.master (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    identity      text NOT NULL,
    agent_version int NOT NULL
);
-- From here on one after the other: no two splits create, replace or drop the rest at the
-- same time. Unlike an advisory lock, nobody else can hold this one.
LOCK TABLE shardmaster_agent.master IN SHARE ROW EXCLUSIVE MODE;

REVOKE ALL ON SCHEMA shardmaster_agent FROM PUBLIC;
COMMENT ON SCHEMA shardmaster_agent IS 'objects of shardmaster; removed when the last split has left this database';
COMMENT ON TABLE shardmaster_agent.master IS 'the one master that may move data of this database';

-- Goes with the last split, as all of these do but the master's identity.
CREATE TABLE IF NOT EXISTS shardmaster_agent.made (
    digest  text NOT NULL,
    objects text NOT NULL
);
COMMENT ON TABLE shardmaster_agent.made IS 'the statements that made the tables and functions here, with a fingerprint of the result';

-- Changed by nothing but the transitions of the protocol: every capturing
-- transaction above READ COMMITTED locks its row.
CREATE TABLE IF NOT EXISTS shardmaster_agent.side (
    split_id    bigint NOT NULL,
    side        text NOT NULL CHECK (side IN ('source', 'target')),
    state       text NOT NULL CHECK (state IN ('capture', 'fenced', 'moved', 'closed', 'open', 'left')),
    version     bigint,
    token       text NOT NULL,
    shard       text NOT NULL,
    other_shard text NOT NULL,
    namespace   text NOT NULL,
    keyspace    text NOT NULL,
    entries     text NOT NULL,
    PRIMARY KEY (split_id, side)
);
CREATE INDEX IF NOT EXISTS side_token ON shardmaster_agent.side (token);
COMMENT ON TABLE shardmaster_agent.side IS 'state of each side of a split: capture, fenced, moved; closed, open, left';

CREATE TABLE IF NOT EXISTS shardmaster_agent.generation (
    split_id      bigint NOT NULL,
    side          text NOT NULL,
    generation    bigint NOT NULL,
    PRIMARY KEY (split_id, side)
);
COMMENT ON TABLE shardmaster_agent.generation IS 'which worker may act on a side';

-- Sessions that a worker has open here, so that the next one can end them.
CREATE TABLE IF NOT EXISTS shardmaster_agent.session (
    split_id      bigint NOT NULL,
    side          text NOT NULL,
    backend_pid   int NOT NULL,
    backend_start timestamptz NOT NULL,
    PRIMARY KEY (split_id, side, backend_pid, backend_start)
);
COMMENT ON TABLE shardmaster_agent.session IS 'sessions of the worker, by process id and start';

CREATE TABLE IF NOT EXISTS shardmaster_agent.progress (
    split_id   bigint PRIMARY KEY,
    state      jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE shardmaster_agent.progress IS 'on a target: the snapshot and the cursors that its rows correspond to';

CREATE TABLE IF NOT EXISTS shardmaster_agent.consumed (
    split_id    bigint PRIMARY KEY,
    snapshot    pg_catalog.pg_snapshot,
    steps       bigint NOT NULL DEFAULT 0,
    announced   bigint NOT NULL DEFAULT 0,
    purging     boolean NOT NULL DEFAULT false,
    deciding    text
);
COMMENT ON TABLE shardmaster_agent.consumed IS 'on a source: the snapshot and the step up to which the queue has been delivered, the last step that the target was about to commit, whether finish has begun to delete, and the run of the master that may have decided the cutover';

CREATE TABLE IF NOT EXISTS shardmaster_agent.lease (
    split_id   bigint PRIMARY KEY,
    open_until timestamptz NOT NULL,
    max_bytes  bigint NOT NULL
);
COMMENT ON TABLE shardmaster_agent.lease IS 'how long and how far a queue may grow';

CREATE TABLE IF NOT EXISTS shardmaster_agent.overflow (
    split_id bigint NOT NULL,
    xid      xid8 NOT NULL,
    PRIMARY KEY (split_id, xid)
);
COMMENT ON TABLE shardmaster_agent.overflow IS 'transactions whose changes were not queued; the copy starts again';

-- Reference tables: what follows them is one worker's of the master.
CREATE TABLE IF NOT EXISTS shardmaster_agent.reference_origin (
    set_id        bigint PRIMARY KEY,
    token         text NOT NULL,
    generation    bigint NOT NULL,
    server        text,
    steps         jsonb NOT NULL DEFAULT '{}',
    consumed      pg_catalog.pg_snapshot,
    is_full       boolean NOT NULL DEFAULT false,
    complete_from xid8 NOT NULL DEFAULT '0',
    max_bytes     bigint NOT NULL
);
COMMENT ON TABLE shardmaster_agent.reference_origin IS 'reference tables that others follow: the last step that each copy was about to commit, and what was removed from the queues';
COMMENT ON COLUMN shardmaster_agent.reference_origin.server IS 'its server and timeline: on another one the numbers of transactions have no meaning';
COMMENT ON COLUMN shardmaster_agent.reference_origin.consumed IS 'no queue has an entry that this snapshot has seen; a copy that has not seen all of it is made again';
COMMENT ON COLUMN shardmaster_agent.reference_origin.is_full IS 'a queue was full: nothing is read from the queues until they are open again';
COMMENT ON COLUMN shardmaster_agent.reference_origin.complete_from IS 'changes of earlier transactions may be in no queue: a copy by a snapshot in which one of them was open is made again';

COMMENT ON COLUMN shardmaster_agent.reference_origin.max_bytes IS 'how large a queue may be';

CREATE TABLE IF NOT EXISTS shardmaster_agent.reference_copy (
    set_id     bigint NOT NULL,
    shard      text NOT NULL,
    token      text NOT NULL,
    generation bigint NOT NULL,
    steps      bigint NOT NULL DEFAULT 0,
    server     text,
    snapshot   pg_catalog.pg_snapshot,
    tables     jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (set_id, shard)
);
COMMENT ON TABLE shardmaster_agent.reference_copy IS 'copies of reference tables: the snapshot of their origin that the rows correspond to, its server and timeline, and the definition of each table there';

-- Stays until shard_drop(): a master that was restored to a time before does not write to them.
CREATE TABLE IF NOT EXISTS shardmaster_agent.reference_ended (
    namespace text NOT NULL,
    token     text NOT NULL,
    ended_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, token)
);
COMMENT ON TABLE shardmaster_agent.reference_ended IS 'reference tables that were removed from their keyspace, by their tokens: any client may write to their rows since';

-- Called for statements, so that whoever changes nothing is told, too.
CREATE OR REPLACE FUNCTION shardmaster_agent.reference_guard() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    mover text := current_setting('shardmaster_agent.mover', true);
BEGIN
    IF mover <> '' AND EXISTS (SELECT 1 FROM shardmaster_agent.reference_copy
                                WHERE set_id = TG_ARGV[0]::bigint
                                  AND token = encode(sha256(convert_to(mover, 'UTF8')), 'hex')) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'table "%" is a copy of a reference table, whose rows are written on shard "%"', TG_TABLE_NAME, TG_ARGV[1]
        USING ERRCODE = '55000',
              DETAIL = json_build_object('table', TG_TABLE_NAME, 'origin', TG_ARGV[1])::text,
              HINT = 'Write there. All other shards follow.';
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.reference_guard() IS 'refuses clients'' writes to a copy of a reference table';

-- Captures nothing itself: the condition of its triggers does.
CREATE OR REPLACE FUNCTION shardmaster_agent.reference_captured() RETURNS trigger
LANGUAGE plpgsql AS $agent$
BEGIN
    RETURN NULL;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.reference_captured() IS 'does nothing: the condition of its triggers queues, and is false';

-- Whether the session is a worker's: of one split, or, without a number, of any split of a
-- namespace and keyspace, as a redirect asks, which is of all of them. Only those know what has
-- a split's token for its hash. The secret of another split is none: the shards of that one
-- know it, which need not be trusted with this one.
--
-- IMMUTABLE is not true beyond one statement: it has the server evaluate the call where it
-- prepares a trigger's WHEN clause, once for each statement, and not for each row of a copy. A
-- session may be given to somebody else, or become a worker's, while it keeps its plans: so
-- what PL/pgSQL keeps a plan of gives the arguments by variables, which no plan has a value of.
-- Without a SET clause, which would cost every writer; all names are qualified, operators too.
CREATE OR REPLACE FUNCTION shardmaster_agent.is_mover(of_split bigint, of_namespace text, of_keyspace text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER AS $agent$
DECLARE
    mover pg_catalog.text := pg_catalog.current_setting('shardmaster_agent.mover', true);
BEGIN
    IF mover OPERATOR(pg_catalog.<>) '' THEN
        RETURN EXISTS (SELECT 1 FROM shardmaster_agent.side
            WHERE token OPERATOR(pg_catalog.=)
                  pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(mover, 'UTF8')), 'hex')
              AND (split_id OPERATOR(pg_catalog.=) of_split
                   OR of_split IS NULL AND namespace OPERATOR(pg_catalog.=) of_namespace
                      AND keyspace OPERATOR(pg_catalog.=) of_keyspace));
    END IF;
    RETURN false;
END $agent$;
COMMENT ON FUNCTION shardmaster_agent.is_mover(bigint, text, text) IS 'whether this session belongs to a worker of a split, or of a namespace and keyspace';
GRANT EXECUTE ON FUNCTION shardmaster_agent.is_mover(bigint, text, text) TO PUBLIC;
