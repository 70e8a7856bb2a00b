-- Of the tables (number, name) that are there: pages, bytes with indexes and TOAST, rows
-- that were written since the server's counters began, and the columns that may be read.
SELECT t.number, s.pages, s.bytes, s.writes,
       (SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(r.%I), 0)', a.attname), ' + ' ORDER BY a.attnum)
          FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = t.class AND a.attnum > 0 AND NOT a.attisdropped
           AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'))
  FROM (SELECT l.number, pg_catalog.to_regclass(l.name)::pg_catalog.oid AS class FROM (VALUES {tables}) l (number, name)) t
 CROSS JOIN LATERAL (
    WITH RECURSIVE tree AS (
        SELECT t.class AS oid
         UNION
        SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent OPERATOR(pg_catalog.=) tree.oid)
    SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(tree.oid)) / pg_catalog.current_setting('block_size')::pg_catalog.int8, 0)::pg_catalog.float8 AS pages,
           coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(tree.oid)), 0)::pg_catalog.float8 AS bytes,
           coalesce(pg_catalog.sum(pg_catalog.pg_stat_get_tuples_inserted(tree.oid)
                               + pg_catalog.pg_stat_get_tuples_updated(tree.oid) + pg_catalog.pg_stat_get_tuples_deleted(tree.oid)), 0)::pg_catalog.float8 AS writes
      FROM tree JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) tree.oid AND c.relkind IN ('r', 'p')) s
 WHERE t.class IS NOT NULL
