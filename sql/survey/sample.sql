-- Rows of a table with their tenants, by the best path and by others: how many there are, the most frequent tenants,
-- rows without a tenant, and rows whose paths lead to different tenants. The errors are estimated from pages, since such
-- rows lie together: by how far the number of each page is from the same part of its rows.
WITH seen AS MATERIALIZED (
    SELECT r.tableoid AS part, (r.ctid::text::point)[0] AS page, {example} AS example, {tenant} AS tenant {others}
      FROM (SELECT t.tableoid, t.ctid, {columns}, row_number() OVER () AS "place of the row" FROM {table} AS t {sample}) r
      {joins}
     WHERE r."place of the row" % {step} = 0
)
SELECT 'rows' AS what, NULL::text AS key, count(*) AS number, NULL::float8 AS squares, NULL::text AS examples FROM seen
UNION ALL
SELECT 'tenants', NULL, count(DISTINCT s.tenant), NULL, NULL FROM seen s
UNION ALL
(SELECT 'tenant', s.tenant, count(*), NULL, NULL FROM seen s WHERE s.tenant IS NOT NULL GROUP BY s.tenant ORDER BY 3 DESC, 2 LIMIT 20)
UNION ALL
SELECT 'without', NULL, sum(p.number),
       sum(p.number * p.number) - 2 * sum(p.number) / sum(p.size) * sum(p.number * p.size) + (sum(p.number) / sum(p.size)) ^ 2 * sum(p.size * p.size),
       min(p.examples)
  FROM (SELECT count(*) FILTER (WHERE s.tenant IS NULL) AS number, count(*) AS size,
               array_to_string((array_agg(s.example ORDER BY s.example) FILTER (WHERE s.tenant IS NULL))[1:3], ', ') AS examples
          FROM seen s GROUP BY s.part, s.page) p
{contradictions}
