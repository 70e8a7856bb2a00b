-- Of the tables $1: the column $2, with what the statistics have of its values. Those of a partitioned table cover all
-- of its partitions, if it was analyzed itself.
SELECT c.oid, format_type(a.atttypid, a.atttypmod), format_type(b.oid, NULL),
       CASE WHEN b.typtype = 'e' THEN 'enum' WHEN b.typnamespace = 'pg_catalog'::regnamespace THEN 'builtin' ELSE 'other' END,
       a.attnotnull, s.null_frac, s.n_distinct, s.most, has_column_privilege(c.oid, a.attnum, 'SELECT')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2::text AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_type y ON y.oid = a.atttypid
  JOIN pg_type b ON b.oid = CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE y.oid END
  -- OFFSET 0: the statistics are found by their indexes, and not joined as a whole.
  LEFT JOIN LATERAL (
    SELECT s.null_frac, s.n_distinct, s.most_common_freqs[1] AS most FROM pg_stats s
     WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = $2::text AND s.inherited = (c.relkind = 'p') OFFSET 0) s ON true
 WHERE c.oid = ANY ($1::oid[])
 ORDER BY c.oid
