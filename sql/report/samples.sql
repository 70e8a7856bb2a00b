-- $1 a split. What its worker has measured, in order.
SELECT extract(epoch FROM s.at)::float8, s.rows_copied, s.changes_applied, s.lag_seconds, s.queue_bytes
  FROM shardmaster.split_sample s WHERE s.split_id = $1 ORDER BY s.at
