-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- For the operator: what a split does, how far it is, why it waits.
CREATE FUNCTION shardmaster.check_split(id bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF $1 IS NULL THEN
        RAISE EXCEPTION 'argument "split_id" must not be NULL' USING ERRCODE = '22004';
    ELSIF NOT EXISTS (SELECT 1 FROM shardmaster.split_plan p WHERE p.id = $1) THEN
        RAISE EXCEPTION 'split % does not exist', $1
            USING ERRCODE = '42704', HINT = 'SELECT split_id, phase FROM shard_split_metrics() lists the splits.';
    END IF;
END $$;
COMMENT ON FUNCTION shardmaster.check_split(bigint) IS 'raises 42704 for a split that does not exist';

COMMENT ON FUNCTION shardmaster.split_takes_worker(bigint) IS
    'whether a split has work for which it takes one of shardmaster.max_split_workers';

-- Calls start one where no coordinator does.
CREATE FUNCTION shardmaster.split_starts_by_call(split_id bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT pg_is_in_recovery()
       AND (current_setting('shardmaster.database', true) IS DISTINCT FROM current_database()
            OR current_setting('shared_preload_libraries') NOT LIKE '%shardmaster%')
       AND NOT EXISTS (SELECT FROM pg_stat_activity a
                        WHERE a.backend_type = 'shardmaster split ' || $1 AND a.datname = current_database())
$$;
COMMENT ON FUNCTION shardmaster.split_starts_by_call(bigint) IS 'whether a split has no worker, and gets one only when somebody calls for it';

-- Why a split that has work has no worker; NULL: it will have one in a moment.
CREATE FUNCTION shardmaster.split_waits_for_worker(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN n.nobody
                THEN format('a worker, but none is started: shardmaster.database is "%s", this database is "%s", and shared_preload_libraries "%s"',
                            current_setting('shardmaster.database', true), current_database(), current_setting('shared_preload_libraries'))
                ELSE concat_ws('; ',
                         format('a worker: all %s (shardmaster.max_split_workers) are with splits %s', s.most, w.splits),
                         'of these wait for shard_split_cutover: ' || w.rest) END
      FROM shardmaster.split_plan p
     CROSS JOIN LATERAL (SELECT current_setting('shardmaster.max_split_workers', true)::bigint) s (most)
     CROSS JOIN LATERAL (
        SELECT count(*), string_agg(o.id::text, ', ' ORDER BY o.id),
               string_agg(o.id::text, ', ' ORDER BY o.id)
                   FILTER (WHERE o.phase = 'cutover_pending' AND o.goal NOT IN ('completed', 'finished', 'rolled_back'))
          -- From the few workers to their splits, and asked of these alone, however many splits there are.
          FROM (SELECT o.id, o.phase, o.goal
                  FROM pg_stat_activity a
                  JOIN shardmaster.split_plan o ON o.id = substring(a.backend_type, '^shardmaster split ([0-9]+)$')::bigint
                 WHERE a.datname = current_database() AND o.id <> p.id OFFSET 0) o
         WHERE shardmaster.split_takes_worker(o.id)) w (count, splits, rest)
     CROSS JOIN LATERAL (SELECT shardmaster.split_starts_by_call(p.id)) n (nobody)
     WHERE p.id = $1 AND shardmaster.split_takes_worker(p.id)
       AND (n.nobody OR w.count >= s.most + (p.goal = 'rolled_back' OR p.goal = 'finished' AND p.phase = 'completed')::int)
$$;
COMMENT ON FUNCTION shardmaster.split_waits_for_worker(bigint) IS 'why a split that has work has no worker; NULL: it has one, or will in a moment';

-- When a split is to end by itself.
CREATE FUNCTION shardmaster.split_settles(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'finishes automatically ' || concat_ws(', or ', s.age || ' after the cutover',
                                   'when the queue of its reverse split has ' || s.queue_bytes || ' bytes')
           || CASE WHEN EXISTS (SELECT FROM shardmaster.split_verification v WHERE v.split_id = $1
                                                AND (v.differing > 0 OR v.differed > 0 OR v.status IN ('pending', 'running')))
                   THEN ', but not while rows are compared or known to differ' ELSE '' END
      FROM shardmaster.split_settle s WHERE s.split_id = $1
$$;
COMMENT ON FUNCTION shardmaster.split_settles(bigint) IS 'when a split finishes automatically; NULL: only when it is requested';

-- What a split whose cutover has decided waits for, while there is nothing to do.
CREATE FUNCTION shardmaster.split_rests(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(shardmaster.split_settles(p.id), 'waiting for shard_split_finish')
      FROM shardmaster.split_plan p
     WHERE p.id = $1 AND p.phase = 'completed' AND p.finished_at IS NULL AND p.activity IN ('idle', 'working')
       AND NOT shardmaster.split_takes_worker(p.id)
       -- It is being taken back.
       AND NOT EXISTS (SELECT FROM shardmaster.split_plan b
                        WHERE b.reverse_of = p.id AND b.goal NOT IN ('planning', 'rolled_back'))
$$;
COMMENT ON FUNCTION shardmaster.split_rests(bigint) IS 'what a completed split waits for; NULL: it is not completed, or is working';

-- What is waited for, as the end of a sentence: texts of workers begin with words of their own.
CREATE FUNCTION shardmaster.waiting_words(waiting_for text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT regexp_replace(regexp_replace($1, '^((waiting for|retrying after:) )+', ''), '^connecting to shard', 'a connection to shard')
$$;
COMMENT ON FUNCTION shardmaster.waiting_words(text) IS 'what a split waits for, to follow the words "waiting for"';

-- What the worker says now; without one, what was last written down. A worker that only
-- says what it does waits for nothing, but while it tries again the reason stays. What it
-- is at is in its application_name.
CREATE FUNCTION shardmaster.split_waits(split_id bigint, OUT waiting_on text, OUT waiting_for text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN w.text IS NULL THEN CASE WHEN r.text IS NOT NULL THEN CASE WHEN r.ends THEN 'time' ELSE 'call' END END
                ELSE w.kind END,
           coalesce(w.text, r.text)
      FROM shardmaster.split_plan p
      LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id
      -- One that waits for the plan's row is not written down there yet.
      LEFT JOIN LATERAL (
        SELECT w.pid, w.query, coalesce(nullif(w.application_name, ''), 'working') AS status FROM pg_stat_activity w
         WHERE w.backend_type = 'shardmaster split ' || p.id AND w.datname = current_database()
           AND (w.pid = p.worker_pid OR w.query <> '')
         ORDER BY w.pid = p.worker_pid DESC NULLS LAST, w.backend_start LIMIT 1) a ON true
     CROSS JOIN LATERAL (SELECT shardmaster.split_rests(p.id), EXISTS (SELECT FROM shardmaster.split_settle s WHERE s.split_id = p.id)) r (text, ends)
     CROSS JOIN LATERAL (
        SELECT CASE WHEN p.paused THEN 'call' ELSE 'other' END, coalesce(shardmaster.split_waits_for_worker(p.id), p.waiting_for) WHERE a.pid IS NULL
        UNION ALL
        SELECT 'other', p.waiting_for WHERE a.status IN ('working', 'following', 'connecting') AND p.activity = 'retrying'
        UNION ALL
        -- It follows its source meanwhile.
        SELECT 'call', 'waiting for shard_split_cutover'
         WHERE a.status = 'following' AND p.phase = 'cutover_pending' AND p.goal = 'backfill'
           AND p.activity <> 'retrying' AND g.tail_status = 'caught_up' AND NOT p.paused
        UNION ALL
        SELECT CASE a.status WHEN 'idle' THEN 'call' WHEN 'connecting' THEN 'connection' ELSE 'other' END, a.query
         WHERE a.status IN ('waiting', 'idle') OR a.status = 'connecting' AND p.activity <> 'retrying'
        UNION ALL
        SELECT NULL, NULL
         LIMIT 1) w (kind, text)
     WHERE p.id = $1
$$;
COMMENT ON FUNCTION shardmaster.split_waits(bigint) IS
    'what a split waits for just now, for people and as a word: call (of an operator), time, connection or other; NULL: it waits for nothing';

CREATE FUNCTION shardmaster.split_waits_for(split_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.waiting_for FROM shardmaster.split_waits($1) w
$$;
COMMENT ON FUNCTION shardmaster.split_waits_for(bigint) IS 'what a split waits for just now; NULL: for nothing';

-- A split of a hundred thousand keys is one line, and so is one of a key of a page.
CREATE FUNCTION shardmaster.some_keys(keys text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(CASE WHEN length(k.key) > 100 THEN left(k.key, 97) || '...' ELSE k.key END ORDER BY k.at)
           || CASE WHEN cardinality($1) > 50 THEN ARRAY[format('... and %s more', cardinality($1) - 50)] ELSE '{}' END
      FROM unnest($1[:50]) WITH ORDINALITY AS k (key, at)
$$;
COMMENT ON FUNCTION shardmaster.some_keys(text[]) IS 'the first 50 keys, each of at most 100 characters, and how many more there are';

CREATE FUNCTION shardmaster.counted(number bigint, one text, more text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT number || ' ' || CASE number WHEN 1 THEN one ELSE more END
$$;
COMMENT ON FUNCTION shardmaster.counted(bigint, text, text) IS 'a number of things in words';

CREATE TYPE shardmaster.split_metrics_row AS (
    split_id bigint, source_shard text, target_shard text, phase text, total_rows_copied bigint,
    backfill_status text, tail_status text, tenants text[], started_at timestamptz, updated_at timestamptz,
    error_message text, last_event_id bigint, last_event_ts timestamptz, routing_version_at_start bigint,
    routing_version_cutover bigint, dual_write_started_at timestamptz, backfill_started_at timestamptz,
    backfill_completed_at timestamptz, cutover_at timestamptz, finished_at timestamptz, activity text,
    waiting_for text, percent numeric, eta interval, lag_rows bigint, lag interval, queue_bytes bigint,
    fence_ms numeric, attempts int, keyspace text, scope text, description text, unknown_since timestamptz,
    error_detail text, rehearsed_ms numeric, next_call text, reverse_of bigint, reads_on text,
    queue_limit bigint, retrying_since timestamptz, fenced_since timestamptz, waiting_on text);
COMMENT ON TYPE shardmaster.split_metrics_row IS 'the columns of shard_split_metrics()';

-- asks: sources, how far targets are behind; of splits that have ended those since ended_since. What it costs is to grow with
-- those that are open, however many have ended.
CREATE FUNCTION shardmaster.split_metrics(split_id bigint, asks boolean, ended_since timestamptz)
RETURNS SETOF shardmaster.split_metrics_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1) WHERE $1 IS NOT NULL;
    WITH worked_on AS MATERIALIZED (
        SELECT a.backend_type FROM pg_stat_activity a
         WHERE a.backend_type LIKE 'shardmaster split %' AND a.datname = current_database()
    )
    SELECT p.id, p.source_shard, p.target_shard, p.phase, coalesce(g.total_rows_copied, 0),
           coalesce(g.backfill_status, 'pending'),
           -- Whether it has caught up is not what the worker last saw, who may be away.
           CASE WHEN p.phase <> 'cutover_pending' OR g.tail_status = 'failed' THEN coalesce(g.tail_status, 'pending')
                WHEN f.is_behind THEN 'running'
                WHEN NOT f.is_behind THEN 'caught_up' END, shardmaster.some_keys(p.tenants), p.started_at, p.updated_at,
           p.error_message, g.last_event_id, g.last_event_ts, p.routing_version_at_start,
           p.routing_version_cutover, g.dual_write_started_at, g.backfill_started_at,
           g.backfill_completed_at, p.cutover_at, p.finished_at,
           -- Nobody is at one that waits for its operator, whatever its last worker has left there.
           CASE WHEN p.activity = 'working' AND p.phase = 'completed'
                 AND NOT shardmaster.split_takes_worker(p.id)
                THEN 'idle'
                -- Its end is a work whose steps are not written down there.
                WHEN p.activity = 'idle' AND p.finished_at IS NULL
                 AND (p.goal = 'finished' AND p.phase = 'completed' OR p.goal = 'rolled_back' AND p.phase <> 'rolled_back')
                THEN 'working' ELSE p.activity END,
           -- That capture has stopped is told beside whatever is waited for.
           CASE WHEN n.has_ended THEN p.waiting_for
                WHEN f.lag_rows IS NULL THEN coalesce(w.waiting_for, f.problem)
                ELSE nullif(concat_ws('; ', w.waiting_for, f.problem), '') END,
           g.percent,
           CASE WHEN p.phase = 'backfill' AND p.goal <> 'rolled_back' AND g.percent > 0
                THEN (clock_timestamp() - g.backfill_started_at) * ((100 - g.percent) / g.percent)::float8 END,
           CASE WHEN n.followed THEN f.lag_rows ELSE g.lag_rows END,
           CASE WHEN n.followed THEN make_interval(secs => f.lag_seconds) ELSE g.lag END,
           CASE WHEN n.followed THEN f.queue_bytes ELSE g.queue_bytes END, g.fence_ms, p.attempts, p.keyspace,
           CASE p.scope_kind WHEN 'range' THEN array_to_string(shardmaster.some_keys(p.tenants[:3]), ' ') ||
                                   CASE WHEN cardinality(p.tenants) > 3 THEN ' ...' ELSE '' END
                             WHEN 'all' THEN format('all, %s', shardmaster.counted(cardinality(p.tenants), 'entry', 'entries'))
                             ELSE shardmaster.counted(cardinality(p.tenants), rtrim(p.scope_kind, 's'), p.scope_kind) END, p.description,
           CASE WHEN n.followed AND f.lag_rows IS NULL
                THEN coalesce(g.measured_at, g.dual_write_started_at, p.created_at) END,
           p.error_detail, g.rehearsed_ms,
           CASE WHEN p.finished_at IS NULL THEN shardmaster.split_to_call(p.id) END,
           p.reverse_of,
           CASE WHEN p.finished_at IS NOT NULL THEN NULL
                WHEN p.phase = 'completed' OR p.reads_on_target THEN p.target_shard ELSE p.source_shard END, f.queue_limit,
           CASE WHEN p.attempts > 0 THEN p.retrying_since END, p.fenced_since,
           CASE WHEN NOT n.has_ended THEN coalesce(w.waiting_on, CASE WHEN f.problem IS NOT NULL THEN 'other' END) END
      FROM shardmaster.split_plan p
      LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id
     CROSS JOIN LATERAL (SELECT p.phase IN ('dual_write', 'backfill', 'tailing', 'cutover_pending')
                            OR p.reverse_of IS NOT NULL AND p.phase = 'planning',
                            (p.finished_at IS NOT NULL OR p.phase = 'rolled_back')
                            AND NOT EXISTS (SELECT FROM worked_on w WHERE w.backend_type = 'shardmaster split ' || p.id)) n (followed, has_ended)
      LEFT JOIN (SELECT * FROM shardmaster.split_figures($1) WHERE $2) f ON f.split_id = p.id
      LEFT JOIN LATERAL shardmaster.split_waits(p.id) w ON NOT n.has_ended
     WHERE p.id = $1
        OR $1 IS NULL AND (p.finished_at IS NULL AND p.phase <> 'rolled_back' OR coalesce(p.finished_at, p.updated_at) >= $3)
     ORDER BY p.id
$$;
COMMENT ON FUNCTION shardmaster.split_metrics(bigint, boolean, timestamptz) IS 'internal: what shard_split_metrics() gives';

CREATE FUNCTION @extschema@.shard_split_metrics(split_id bigint DEFAULT NULL)
RETURNS SETOF shardmaster.split_metrics_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardmaster.split_metrics($1, true, now() - interval '1 day')
$$;
COMMENT ON FUNCTION @extschema@.shard_split_metrics(bigint) IS
    'one row for each split that is open or has ended within a day, or for the one that is asked for: what it does, how far it is, why it waits. Example: SELECT * FROM shard_split_metrics(7). Sizes are in bytes. lag_rows: changed rows that are queued on the source, counted up to 1000001. unknown_since: since when lag_rows, lag and queue_bytes are unknown, because the source does not answer within a second. next_call: what to call next. tenants: the first 50 names of what moves; shard_split_keys() has all. reverse_of: the split that this one reverses; lag_rows is then what it would have to bring back. reads_on: the shard that reads go to; NULL: the split is finished. queue_limit: the size at which capture stops and the copy begins again. retrying_since: since when attempts fail; NULL: the last one did not. fence_ms: how long the cutover, or a failed attempt that took longer, kept writers waiting. rehearsed_ms: the same of the last rehearsal. fenced_since: since when the cutover keeps writers waiting, or a shard that has lost the state of the split has not got it back. waiting_on: what waiting_for is, as a word: call (of an operator), time, connection or other; NULL: the split waits for nothing';
COMMENT ON FUNCTION shardmaster.split_figures(bigint) IS
    'internal: what shard_split_metrics asks the sources of active splits; problem: why there is no answer, or what is wrong with it';

CREATE FUNCTION @extschema@.shard_split_keys(split_id bigint) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 1000 SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1);
    SELECT unnest(p.tenants) FROM shardmaster.split_plan p WHERE p.id = $1
$$;
COMMENT ON FUNCTION @extschema@.shard_split_keys(bigint) IS
    'the keys, buckets or ranges of a split, one a row. Example: SELECT * FROM shard_split_keys(7). 42704: no such split';

CREATE TYPE shardmaster.split_tables_row AS (
    table_name text, status text, "position" text, rows_copied bigint, changes_applied bigint, bytes bigint,
    chunks_ok bigint, chunks_failed bigint, started_at timestamptz, completed_at timestamptz, last_error text);
COMMENT ON TYPE shardmaster.split_tables_row IS 'the columns of shard_split_tables()';

CREATE FUNCTION @extschema@.shard_split_tables(split_id bigint)
RETURNS SETOF shardmaster.split_tables_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1);
    SELECT t.table_name, coalesce(g.status, 'pending'), g."position", coalesce(g.rows_copied, 0),
           coalesce(g.changes_applied, 0), coalesce(g.bytes, 0), coalesce(g.chunks_ok, 0),
           coalesce(g.chunks_failed, 0), g.started_at, g.completed_at, g.last_error
      FROM shardmaster.split_table t
      LEFT JOIN shardmaster.split_table_progress g ON g.split_id = t.split_id AND g.ordinal = t.ordinal
     WHERE t.split_id = $1 ORDER BY t.ordinal
$$;
COMMENT ON FUNCTION @extschema@.shard_split_tables(bigint) IS
    'the tables of a split with their progress; bytes as they were sent. Example: SELECT * FROM shard_split_tables(7)';

CREATE TYPE shardmaster.split_events_row AS (at timestamptz, from_phase text, to_phase text, who text, detail text);
COMMENT ON TYPE shardmaster.split_events_row IS 'the columns of shard_split_events()';

CREATE FUNCTION @extschema@.shard_split_events(split_id bigint)
RETURNS SETOF shardmaster.split_events_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardmaster.check_split($1);
    SELECT e.at, e.from_phase, e.to_phase, e.who, e.detail
      FROM shardmaster.split_event e WHERE e.split_id = $1 ORDER BY e.id
$$;
COMMENT ON FUNCTION @extschema@.shard_split_events(bigint) IS
    'the events of a split, in order: requests, changes of phase, failures. Example: SELECT * FROM shard_split_events(7)';

-- One line of a terminal has no room for a key of a page.
CREATE FUNCTION shardmaster.clipped(text text, most int) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN length(t.line) > most THEN left(t.line, most - 3) || '...' ELSE t.line END
      FROM (SELECT regexp_replace($1, '\s+', ' ', 'g')) t (line)
$$;
COMMENT ON FUNCTION shardmaster.clipped(text, int) IS 'a text in one line of at most so many characters';

-- A rate of a copy that has begun.
CREATE FUNCTION shardmaster.copy_rate(rows bigint, began timestamptz, ended timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s rows/s', round(rows / greatest(extract(epoch FROM coalesce(ended, clock_timestamp()) - began), 0.001)))
     WHERE rows > 0 AND began IS NOT NULL
$$;
COMMENT ON FUNCTION shardmaster.copy_rate(bigint, timestamptz, timestamptz) IS 'rows a second since a copy began, until it ended or now';

-- Nobody tells the server whether a client is a terminal: psql is taken for one, where plain characters hurt no log either.
CREATE FUNCTION shardmaster.progress_bar(percent bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('[%s] ', rpad(repeat('#', least(coalesce($1, 0) / 5, 20)::int), 20, '.'))
     WHERE current_setting('application_name') = 'psql'
$$;
COMMENT ON FUNCTION shardmaster.progress_bar(bigint) IS 'the progress of a copy as a bar; NULL if the client is not psql';

CREATE FUNCTION shardmaster.split_line(split_id bigint) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws(', ',
               format('split %s: %s%s', m.split_id, CASE WHEN g.goes_back THEN 'rolling back from ' END, m.phase),
               CASE WHEN g.copies THEN concat(shardmaster.progress_bar(floor(m.percent)::bigint), coalesce(m.percent, 0), ' %') END,
               CASE WHEN NOT g.goes_back AND m.phase IN ('backfill', 'tailing', 'cutover_pending', 'completed')
                    THEN shardmaster.counted(m.total_rows_copied, 'row', 'rows') || ' copied' END,
               CASE WHEN g.copies
                    THEN nullif(concat_ws(', ', shardmaster.copy_rate(m.total_rows_copied, m.backfill_started_at, NULL),
                                          'about ' || date_trunc('second', m.eta) || ' left'), '') END,
               CASE WHEN NOT g.goes_back AND m.phase = 'tailing'
                    THEN shardmaster.counted(m.lag_rows, 'changed row', 'changed rows') || ' behind' END,
               CASE WHEN m.phase = 'completed' AND m.fence_ms IS NOT NULL
                    THEN format('writers waited at most %s ms', m.fence_ms) END,
               CASE WHEN m.phase = 'completed' AND p.goal = 'finished' AND m.finished_at IS NULL THEN 'finishing' END,
               CASE WHEN m.activity IN ('retrying', 'failed', 'paused')
                    THEN concat_ws(' since ', m.activity,
                                   CASE WHEN m.activity = 'retrying' THEN date_trunc('second', m.retrying_since) END) END,
               -- What its operator does next is no news to whoever runs it.
               CASE WHEN m.activity = 'paused' OR m.activity = 'retrying' OR m.activity <> 'failed' AND m.waiting_on NOT IN ('call', 'connection')
                    THEN 'waiting for ' || shardmaster.clipped(shardmaster.waiting_words(m.waiting_for), 700) END)
      FROM shardmaster.split_plan p
     -- What its source would say stands in the line of one phase alone.
      JOIN shardmaster.split_metrics(split_id, p.phase = 'tailing', 'infinity'::timestamptz) m ON p.id = m.split_id
     CROSS JOIN LATERAL (SELECT p.goal = 'rolled_back' AND m.phase <> 'rolled_back') b (goes_back)
     CROSS JOIN LATERAL (SELECT b.goes_back, m.phase = 'backfill' AND NOT b.goes_back) g (goes_back, copies)
     -- An attempt that is under way says nothing new, until it has passed or failed, too.
     WHERE p.id = $1 AND NOT (m.attempts > 0 AND m.activity = 'working' AND coalesce(m.waiting_on, 'connection') = 'connection')
$$;
COMMENT ON FUNCTION shardmaster.split_line(bigint) IS 'internal: a split in one line, for shard_split_run; NULL: there is nothing new';

-- What keeps a split from beginning is wrong more often than it passes: whoever watches is told, and may mend it.
CREATE FUNCTION shardmaster.split_in_vain(split_id bigint, watched_since timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    plan shardmaster.split_plan%ROWTYPE;
BEGIN
    SELECT * INTO plan FROM shardmaster.split_plan p
     WHERE p.id = split_id AND p.phase = 'planning' AND p.goal <> 'planning' AND p.activity = 'retrying' AND p.attempts >= 3
       AND greatest(p.retrying_since, watched_since) < clock_timestamp() - interval '30 s';
    IF FOUND THEN
        RAISE EXCEPTION 'split % has not begun, since %', plan.id, shardmaster.clipped(shardmaster.waiting_words(plan.waiting_for), 700)
            USING ERRCODE = '57014',
                  HINT = format('It is tried again. The same call watches it again, CALL shard_split_run(%1$s, ''rolled_back'') ends it.', plan.id);
    END IF;
END $$;
COMMENT ON FUNCTION shardmaster.split_in_vain(bigint, timestamptz) IS 'internal: raises 57014 if a split could not begin for half a minute while it was watched';

CREATE FUNCTION shardmaster.split_account(split_id bigint, began timestamptz) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws('; ',
               format('split %s: %s after %s', m.split_id, CASE WHEN m.finished_at IS NOT NULL THEN 'finished' ELSE m.phase END,
                      date_trunc('milliseconds', clock_timestamp() - began)),
               shardmaster.counted(nullif(m.total_rows_copied, 0), 'row', 'rows') || ' copied'
                   || coalesce(' at ' || shardmaster.copy_rate(m.total_rows_copied, m.backfill_started_at, m.backfill_completed_at), ''),
               CASE WHEN m.cutover_at IS NOT NULL THEN
                    concat_ws(', ', format('writers waited at most %s ms', coalesce(m.fence_ms::text, '?')),
                              'the cutover waited for ' || g.fence_waited_for) END,
               'next: ' || m.next_call)
      FROM shardmaster.split_metrics(split_id, false, 'infinity'::timestamptz) m
      LEFT JOIN shardmaster.split_progress g ON g.split_id = m.split_id
$$;
COMMENT ON FUNCTION shardmaster.split_account(bigint, timestamptz) IS 'internal: the summary of shard_split_run';

SET LOCAL search_path = @extschema@, pg_temp;
