-- $1 how many. Keyspaces, with their tables and the newest version of their routing.
SELECT k.name, k.strategy, k.buckets, coalesce(k.key_type, 'text'), coalesce(t.names, '{}'), coalesce(t.count, 0),
       coalesce(v.version, 0), extract(epoch FROM v.changed_at)::float8, count(*) OVER ()
  FROM shardmaster.keyspace k
  LEFT JOIN LATERAL (SELECT (array_agg(left(p.table_name, 200) ORDER BY p.table_name))[:5] AS names, count(*)
                       FROM shardmaster.table_policy p WHERE p.keyspace = k.name) t ON true
  LEFT JOIN LATERAL (SELECT r.version, r.changed_at FROM shardmaster.routing_version r
                      WHERE r.keyspace = k.name ORDER BY r.version DESC LIMIT 1) v ON true
 ORDER BY v.changed_at DESC NULLS LAST, k.name LIMIT $1
