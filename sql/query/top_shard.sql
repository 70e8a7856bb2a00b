-- The keys of a shard that have most of something, with what all of its tables have of them.
SELECT t.key, pg_catalog.round(t.rows)::pg_catalog.int8, pg_catalog.round(1.96 * pg_catalog.sqrt(t.variance))::pg_catalog.int8,
       pg_catalog.round(t.bytes)::pg_catalog.int8, pg_catalog.round(t.writes)::pg_catalog.int8, t.share
  FROM (SELECT a.key, pg_catalog.sum(a.rows) AS rows, pg_catalog.sum(a.variance) AS variance,
               pg_catalog.sum(a.bytes) AS bytes, pg_catalog.sum(a.writes) AS writes,
               coalesce(100 * pg_catalog.sum(a.{by}) / nullif(pg_catalog.sum(pg_catalog.sum(a.{by})) OVER (), 0), 0) AS share
          FROM (
{tables}
               ) a GROUP BY a.key) t
 ORDER BY t.{by} DESC, t.key LIMIT {most}
