-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Long work on the shards, which one worker does, a piece at a time.
CREATE TABLE shardmaster.job (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('derive', 'derive_drop', 'identify')),
    keyspace    text NOT NULL,
    object      text NOT NULL,
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'failed', 'done')),
    shard_key   text,
    step        text NOT NULL DEFAULT 'begin',
    position    text NOT NULL DEFAULT '',
    done        bigint NOT NULL DEFAULT 0,
    total       bigint,
    waiting_for text,
    error_code    text,
    error_message text,
    error_hint    text,
    started_by  text NOT NULL DEFAULT session_user,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz
);
CREATE INDEX job_open ON shardmaster.job (id) WHERE state IN ('running', 'paused', 'failed');
COMMENT ON TABLE shardmaster.job IS 'long work on the shards; see shard_jobs()';
COMMENT ON COLUMN shardmaster.job.kind IS 'what is done: derive fills a derived column, derive_drop removes it, identify gives the table a primary key';
COMMENT ON COLUMN shardmaster.job.keyspace IS 'the keyspace of the table';
COMMENT ON COLUMN shardmaster.job.object IS 'the table that it is done to';
COMMENT ON COLUMN shardmaster.job.state IS 'running: the worker goes on; paused: an operator holds it back; failed: it needs an operator; done';
COMMENT ON COLUMN shardmaster.job.shard_key IS 'the shard that it is at';
COMMENT ON COLUMN shardmaster.job.step IS 'what it does on that shard';
COMMENT ON COLUMN shardmaster.job.position IS 'how far that step is, for the worker';
COMMENT ON COLUMN shardmaster.job.done IS 'how many blocks of the table that step has passed';
COMMENT ON COLUMN shardmaster.job.total IS 'of how many';

-- Columns that are filled from the table that a foreign key leads to.
CREATE TABLE shardmaster.derived_column (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    keyspace     text NOT NULL REFERENCES shardmaster.keyspace (name) ON UPDATE CASCADE ON DELETE CASCADE,
    table_name   text NOT NULL,
    column_name  text NOT NULL,
    through      text[] NOT NULL,
    value_column text,
    was_there    boolean NOT NULL DEFAULT false,
    UNIQUE (keyspace, table_name)
);
COMMENT ON TABLE shardmaster.derived_column IS 'columns that are filled from the table that a foreign key leads to; see shard_table_derive()';
COMMENT ON COLUMN shardmaster.derived_column.through IS 'the columns of the foreign key';
COMMENT ON COLUMN shardmaster.derived_column.value_column IS 'the column of the other table with the value';
COMMENT ON COLUMN shardmaster.derived_column.was_there IS 'whether the table had the column before, so that it stays';

SELECT pg_catalog.pg_extension_config_dump('shardmaster.job', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.job_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.derived_column', '');
SELECT pg_catalog.pg_extension_config_dump('shardmaster.derived_column_id_seq', '');

CREATE TYPE shardmaster.jobs_row AS (
    job_id bigint, kind text, object text, keyspace text, state text, shard text, step text, percent numeric,
    waiting_for text, error text, hint text, started_by text, started_at timestamptz, ended_at timestamptz);
COMMENT ON TYPE shardmaster.jobs_row IS 'the columns of shard_jobs()';

CREATE FUNCTION @extschema@.shard_jobs() RETURNS SETOF shardmaster.jobs_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT j.id, j.kind, j.object, j.keyspace, j.state, j.shard_key, j.step,
           CASE WHEN j.step = 'rows' AND j.total > 0 THEN round(least(100.0 * j.done / j.total, 100), 1) END,
           j.waiting_for, j.error_message, j.error_hint, j.started_by, j.started_at, j.ended_at
      FROM shardmaster.job j ORDER BY j.id
$$;
COMMENT ON FUNCTION @extschema@.shard_jobs() IS
    'long work on the shards: one row a job, the oldest first. state: running, paused, failed or done. shard, step: where it is. percent: of the table, while its rows are filled. Example: SELECT * FROM shard_jobs()';

SET LOCAL search_path = @extschema@, pg_temp;
