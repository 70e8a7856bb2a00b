-- The tables of some schemas, each with its partitions as one: what they are, and what is known of their rows.
-- $1: the schemas, NULL: all but those of the server, of extensions and of $2; $2: schemas of other shards.
WITH RECURSIVE part (root, oid) AS (
    SELECT c.oid, c.oid
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
       AND CASE WHEN $1::text[] IS NULL
                THEN n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardmaster', 'shardmaster_agent')
                     AND n.nspname::text <> ALL ($2::text[])
                ELSE n.nspname::text = ANY ($1::text[]) END
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    UNION ALL
    SELECT t.root, i.inhrelid
      FROM part t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
), held AS MATERIALIZED (
    -- A size is read under a lock, for which a session that changes the table would be waited for.
    SELECT DISTINCT coalesce(x.indrelid, l.relation) AS oid
      FROM pg_locks l LEFT JOIN pg_index x ON x.indexrelid = l.relation
     WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), leaf AS MATERIALIZED (
    SELECT p.root, c.oid, c.relkind, c.reltuples::float8 AS tuples, c.relpages::float8 AS pages,
           NOT $3::boolean AND NOT EXISTS (SELECT FROM held h WHERE h.oid = c.oid) AS is_free,
           has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE') AS may_read
      FROM part p JOIN pg_class c ON c.oid = p.oid
), sized AS MATERIALIZED (
    SELECT l.*, current_setting('block_size')::float8 AS block,
           CASE WHEN l.is_free AND l.relkind = 'r' THEN pg_relation_size(l.oid) END::float8 AS heap,
           CASE WHEN l.is_free AND l.relkind = 'r' THEN pg_total_relation_size(l.oid) END::float8 AS whole,
           pg_stat_get_live_tuples(l.oid)::float8 AS live
      FROM leaf l
), known AS (
    -- What was analyzed is scaled to the size of today. What was not is counted by the server's statistics, or estimated
    -- by its size.
    SELECT s.root, s.oid, s.relkind, s.is_free, s.pages, s.block, s.may_read,
           coalesce(s.heap, s.pages * s.block) AS heap, coalesce(s.whole, s.pages * s.block) AS whole,
           s.pages > 0 OR s.tuples > 0 OR s.heap = 0 AS is_analyzed,
           CASE WHEN s.pages > 0 THEN s.tuples * coalesce(s.heap / s.block, s.pages) / s.pages
                WHEN s.tuples > 0 THEN s.tuples
                WHEN s.live > 0 THEN s.live
                ELSE coalesce(s.heap, 0) / 100 END AS tuples
      FROM sized s
), total AS MATERIALIZED (
    SELECT k.root, sum(k.tuples) FILTER (WHERE k.relkind = 'r') AS tuples, sum(k.whole) AS whole, sum(k.heap) / max(k.block) AS pages,
           bool_and(k.is_analyzed OR k.relkind <> 'r') AS is_analyzed, bool_and(k.is_free) AS is_free,
           bool_or(k.relkind = 'f') AS has_foreign, count(*) FILTER (WHERE k.relkind = 'r') AS leaves, bool_and(k.may_read) AS may_read,
           sum(pg_stat_get_tuples_inserted(k.oid)) AS inserted,
           sum(pg_stat_get_tuples_updated(k.oid) + pg_stat_get_tuples_deleted(k.oid)) AS changed
      FROM known k GROUP BY k.root
)
SELECT c.oid, n.nspname, c.relname, pg_get_userbyid(c.relowner), c.relkind, c.relpersistence,
       round(t.tuples::numeric), round(t.whole::numeric), ceil(t.pages)::bigint, t.leaves, t.is_analyzed, t.is_free,
       -- A query names the table alone, so its rights count, and not those of its partitions.
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'),
       row_security_active(c.oid), t.has_foreign,
       c.relkind = 'r' AND c.relhassubclass AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
           OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid),
       t.inserted, t.changed,
       greatest(extract(epoch FROM now() - coalesce(pg_stat_get_db_stat_reset_time(d.oid), pg_postmaster_start_time())), 1)::bigint
  FROM total t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN (SELECT oid FROM pg_database WHERE datname = current_database()) d
 ORDER BY n.nspname, c.relname
