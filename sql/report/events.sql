-- $1 how many. The last things that have happened to splits and to routing, the newest first.
SELECT extract(epoch FROM e.at)::float8, e.what, left(e.who, 200), shardmaster.clipped(e.detail, 300)
  FROM ((SELECT s.at, s.id, format('split %s', s.split_id) AS what, s.who,
                concat_ws(': ', CASE WHEN s.from_phase IS DISTINCT FROM s.to_phase THEN concat_ws(' → ', s.from_phase, s.to_phase) END,
                          nullif(s.detail, '')) AS detail
           FROM shardmaster.split_event s ORDER BY s.id DESC LIMIT $1)
        UNION ALL
        (SELECT v.changed_at, v.version, format('routing of %s', k.name), v.changed_by,
                concat_ws(': ', format('version %s', v.version), v.reason)
           FROM (SELECT name FROM shardmaster.keyspace ORDER BY name LIMIT 200) k
          CROSS JOIN LATERAL (SELECT * FROM shardmaster.routing_version r
                               WHERE r.keyspace = k.name ORDER BY r.version DESC LIMIT $1) v
          -- What a split has changed is told by its own events.
          WHERE v.split_id IS NULL
          ORDER BY v.changed_at DESC LIMIT $1)) e
 ORDER BY e.at DESC, e.id DESC LIMIT $1
