-- $1 how many. Those that have not ended first, those that have failed before all others; then the last that have.
WITH shown AS MATERIALIZED (
    SELECT p.id, count(*) OVER () AS of_all,
           row_number() OVER (ORDER BY p.finished_at IS NOT NULL OR p.phase = 'rolled_back', p.activity = 'failed' DESC, p.updated_at DESC) AS place
      FROM shardmaster.split_plan p
     -- A reverse split that nobody has asked for is no work.
     WHERE NOT (p.reverse_of IS NOT NULL AND p.started_at IS NULL AND p.phase IN ('planning', 'rolled_back'))
     ORDER BY 3 LIMIT $1)
SELECT p.id, p.source_shard, p.target_shard, p.keyspace,
       shardmaster.clipped(shardmaster.split_moves(p.scope_kind, p.tenants, p.reverse_of), 120),
       CASE WHEN b.phase = 'completed' THEN 'taken back' WHEN p.finished_at IS NOT NULL THEN 'finished' ELSE p.phase END,
       CASE WHEN p.activity IN ('failed', 'retrying', 'paused') THEN p.activity
            WHEN p.fenced_since IS NOT NULL THEN 'writers wait'
            WHEN p.goal = 'rolled_back' AND p.phase <> 'rolled_back' THEN 'rolling back'
            WHEN b.phase <> 'completed' THEN 'being taken back'
            WHEN p.goal = 'finished' AND p.finished_at IS NULL THEN 'finishing'
            ELSE p.activity END,
       CASE WHEN p.finished_at IS NOT NULL THEN NULL
            ELSE shardmaster.clipped(coalesce(CASE WHEN p.activity = 'failed' THEN p.error_message END,
                                              shardmaster.waiting_words(shardmaster.split_waits_for(p.id))), 300) END,
       shardmaster.clipped(p.description, 200),
       extract(epoch FROM p.created_at)::float8, extract(epoch FROM g.dual_write_started_at)::float8,
       extract(epoch FROM g.backfill_started_at)::float8, extract(epoch FROM g.backfill_completed_at)::float8,
       extract(epoch FROM p.cutover_at)::float8,
       extract(epoch FROM CASE WHEN p.phase = 'rolled_back' THEN p.updated_at ELSE p.finished_at END)::float8,
       coalesce(g.total_rows_copied, 0), g.percent::float8, g.lag_rows, extract(epoch FROM g.lag)::float8, g.queue_bytes,
       g.fence_ms::float8, s.of_all, extract(epoch FROM p.fenced_since)::float8
  FROM shown s JOIN shardmaster.split_plan p ON p.id = s.id
  LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id
  -- Its reverse split, once somebody has asked for it.
  LEFT JOIN shardmaster.split_plan b ON b.reverse_of = p.id AND b.goal NOT IN ('planning', 'rolled_back')
 ORDER BY s.place
