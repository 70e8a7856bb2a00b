-- How many changes of a split its target does not have yet, the age of the oldest in seconds, the bytes of its
-- queues, whether they take no more entries, and the bytes that they may have; no row: the shard does not know the
-- split. Entries that the applied snapshot has seen may still be in a queue. An empty queue is not asked: most are,
-- and to plan a query takes longer than to run it. For a fresh session: the names are pinned here, the figures go
-- from one statement to the next in a setting, and what is asked ends by itself when nobody waits any more.
SET search_path = pg_catalog, pg_temp; SET statement_timeout = '{within}ms'; SET jit = off; SET max_parallel_workers_per_gather = 0;
DO $agent$
DECLARE
    applied pg_snapshot;
    queue regclass;
    of_queue record;
    changes bigint := 0;
    bytes bigint := 0;
    oldest timestamptz;
BEGIN
    SELECT c.snapshot INTO applied FROM shardmaster_agent.consumed c WHERE c.split_id = {split};
    FOR queue IN SELECT w.name::regclass FROM unnest({queues}::text[]) w (name) WHERE pg_relation_size(w.name::regclass) > 0 LOOP
        EXECUTE format('SELECT count(*) AS changes, min(e.at) AS oldest
                          FROM (SELECT w.at FROM %s w
                                 WHERE w.xid >= coalesce(pg_snapshot_xmin($1), ''0''::xid8)
                                   AND NOT coalesce(pg_visible_in_snapshot(w.xid, $1), false)
                                 LIMIT {most_rows}) e', queue) INTO of_queue USING applied;
        changes := changes + of_queue.changes;
        bytes := bytes + pg_relation_size(queue);
        oldest := least(oldest, of_queue.oldest);
    END LOOP;
    PERFORM set_config('shardmaster_agent.figures', json_build_object('changes', changes, 'oldest', oldest, 'bytes', bytes)::text, false);
END
$agent$;
SELECT least(f.changes, {most_rows}), extract(epoch FROM clock_timestamp() - f.oldest), f.bytes,
       coalesce(pg_sequence_last_value('shardmaster_agent.{sequence}'::regclass), 1) > 1,
       (SELECT l.max_bytes FROM shardmaster_agent.lease l WHERE l.split_id = {split})
  FROM shardmaster_agent.consumed c, json_to_record(current_setting('shardmaster_agent.figures')::json) AS f (changes bigint, oldest timestamptz, bytes bigint)
 WHERE c.split_id = {split}
