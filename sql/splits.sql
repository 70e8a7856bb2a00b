-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- For whoever looks at a terminal: a line for each split. shard_split_metrics() has all of it, and whole.
CREATE FUNCTION shardmaster.split_moves(scope_kind text, entries text[], reverse_of bigint) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN reverse_of IS NOT NULL THEN format('reverse split of split %s', reverse_of)
                WHEN scope_kind = 'range' THEN 'keys from ' || array_to_string(entries[:3], ' ')
                WHEN scope_kind = 'all' THEN 'all, in ' || shardmaster.counted(n.count, 'entry', 'entries')
                WHEN n.count = 1 THEN format('%s %s', rtrim(scope_kind, 's'), entries[1])
                ELSE format('%s %s', n.count, scope_kind) END
      FROM (SELECT cardinality(entries)) n (count)
$$;
COMMENT ON FUNCTION shardmaster.split_moves(text, text[], bigint) IS 'what a split moves, in a few words';

CREATE TYPE shardmaster.splits_row AS (split_id bigint, "from" text, "to" text, moves text, phase text, progress text, waiting_for text, next_call text);
COMMENT ON TYPE shardmaster.splits_row IS 'the columns of shard_splits()';

CREATE FUNCTION @extschema@.shard_splits(ended boolean DEFAULT false)
RETURNS SETOF shardmaster.splits_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.split_id, m.source_shard, m.target_shard,
           shardmaster.clipped(shardmaster.split_moves(p.scope_kind, p.tenants, p.reverse_of), 30),
           CASE WHEN m.finished_at IS NOT NULL THEN 'finished' ELSE m.phase END,
           concat_ws(', ',
               CASE WHEN m.activity IN ('retrying', 'failed', 'paused') THEN m.activity END,
               CASE WHEN p.goal = 'rolled_back' AND m.phase <> 'rolled_back' THEN 'rolling back'
                    WHEN p.goal = 'finished' AND m.phase = 'completed' AND m.finished_at IS NULL THEN 'finishing' END,
               CASE WHEN m.finished_at IS NOT NULL THEN date_trunc('second', m.finished_at)::text
                    WHEN p.goal = 'rolled_back' THEN NULL
                    WHEN m.phase = 'backfill' THEN format('%s %%', coalesce(m.percent, 0)) END,
               CASE WHEN m.phase = 'backfill' THEN date_trunc('second', m.eta) || ' left' END,
               'writers wait since ' || date_trunc('second', m.fenced_since),
               CASE WHEN p.goal <> 'rolled_back' AND m.phase IN ('tailing', 'cutover_pending') THEN
                    CASE WHEN m.tail_status = 'caught_up' THEN 'caught up'
                         ELSE coalesce(shardmaster.counted(m.lag_rows, 'row', 'rows'), 'unknown rows') || ' behind' END END,
               CASE WHEN m.phase = 'completed' AND m.finished_at IS NULL AND m.fenced_since IS NULL
                    THEN 'writers waited ' || round(m.fence_ms) || ' ms' END),
           -- What is wrong is what it waits for: somebody to mend it.
           shardmaster.clipped(coalesce(CASE WHEN m.activity = 'failed' THEN m.error_message END,
                                        CASE WHEN m.phase = 'cutover_pending' AND m.waiting_on = 'call' AND m.activity <> 'paused'
                                             THEN 'shard_split_cutover' || coalesce(' again: ' || m.error_message, '') END,
                                        shardmaster.waiting_words(m.waiting_for)), 120),
           m.next_call
      FROM shardmaster.split_metrics(NULL::bigint, true, CASE WHEN ended THEN '-infinity' ELSE 'infinity' END::timestamptz) m JOIN shardmaster.split_plan p ON p.id = m.split_id
     WHERE (coalesce(ended, false) OR m.finished_at IS NULL AND m.phase <> 'rolled_back')
       -- A reverse split that nobody has asked for is no work.
       AND NOT (p.reverse_of IS NOT NULL AND p.started_at IS NULL AND p.phase IN ('planning', 'rolled_back'))
     ORDER BY m.split_id
$$;
COMMENT ON FUNCTION @extschema@.shard_splits(boolean) IS
    'one row for each split that is neither finished nor rolled back: what it moves, how far it is, what it waits for or why it has failed, and what to call next. ended: the others as well. Example: SELECT * FROM shard_splits(). shard_split_metrics() has all figures and the whole texts';

-- For whoever types a table's name; as the function without its argument.
CREATE VIEW @extschema@.shard_splits AS SELECT * FROM @extschema@.shard_splits(false);
COMMENT ON VIEW @extschema@.shard_splits IS 'one row for each split that is neither finished nor rolled back, as in shard_splits(), for roles that may call that';

SET LOCAL search_path = @extschema@, pg_temp;
