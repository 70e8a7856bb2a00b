UNION ALL
SELECT 'other', {text}, sum(p.number),
       sum(p.number * p.number) - 2 * sum(p.number) / sum(p.size) * sum(p.number * p.size) + (sum(p.number) / sum(p.size)) ^ 2 * sum(p.size * p.size),
       min(p.examples)
  FROM (SELECT count(*) FILTER (WHERE s.tenant <> s.{other}) AS number, count(*) AS size,
               array_to_string((array_agg(s.example ORDER BY s.example) FILTER (WHERE s.tenant <> s.{other}))[1:3], ', ') AS examples
          FROM seen s GROUP BY s.part, s.page) p
