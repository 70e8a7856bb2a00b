-- The cutovers of a keyspace ($1) before a version ($2) that this master knows, newest first, as JSON. At most $3; of one
-- more that there is no keys are told, so that who reads it knows that there may be others before it. Keys of few only:
-- $4 in all. What is stored large is not read at all.
WITH known AS (
    (SELECT p.id, p.token, p.routing_version_cutover AS version, p.source_shard AS from_shard, p.target_shard AS to_shard,
            NULL::bigint AS key_count, CASE WHEN pg_column_size(p.tenants) <= 65536 THEN p.tenants END AS keys
       FROM shardmaster.split_plan p
      WHERE p.keyspace = $1 AND p.routing_version_cutover < $2 AND p.phase = 'completed'
      ORDER BY p.routing_version_cutover DESC LIMIT $3 + 1)
    UNION ALL
    (SELECT a.split_id, a.token, a.version, a.from_shard, a.to_shard, a.key_count,
            CASE WHEN pg_column_size(a.keys) <= 65536 THEN a.keys END
       FROM shardmaster.adopted_decision a
      WHERE a.keyspace = $1 AND a.version < $2 AND a.from_shard IS NOT NULL
      ORDER BY a.version DESC LIMIT $3 + 1)
), counted AS (
    SELECT k.*, row_number() OVER newest AS place,
           CASE WHEN cardinality(k.keys) <= $4
                THEN sum(cardinality(k.keys)) FILTER (WHERE cardinality(k.keys) <= $4) OVER newest END AS keys_so_far
      FROM known k
    WINDOW newest AS (ORDER BY k.version DESC, k.id DESC)
)
SELECT coalesce(jsonb_agg(jsonb_build_object(
           'split', c.id, 'token', c.token, 'version', c.version, 'from', c.from_shard, 'to', c.to_shard,
           'count', coalesce(c.key_count, cardinality(c.keys)),
           'keys', CASE WHEN c.place <= $3 AND c.keys_so_far <= $4 THEN to_jsonb(c.keys) END) ORDER BY c.place), '[]')::text
  FROM counted c WHERE c.place <= $3 + 1
