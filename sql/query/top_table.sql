-- What one table has, by key. Pages are chosen at random, all of their rows are counted: the square of the error is
-- estimated from pages, since rows of one key lie together. Who has written lately is told by the rows that were
-- written last, each counting the more the younger it is.
SELECT coalesce(s.key, h.key) AS key, coalesce(s.rows, 0) AS rows, coalesce(s.variance, 0) AS variance,
       coalesce(s.bytes / nullif(pg_catalog.sum(s.bytes) OVER (), 0) * {bytes}, 0) AS bytes,
       coalesce(h.heat / nullif(pg_catalog.sum(h.heat) OVER (), 0) * {writes}, 0) AS writes
  FROM (SELECT p.key, pg_catalog.sum(p.rows) / {part} AS rows, pg_catalog.sum(p.bytes) AS bytes,
               pg_catalog.sum(p.rows * p.rows) * (1 - {part}) / ({part} * {part}) AS variance
          FROM (SELECT {key} AS key, pg_catalog.count(*)::pg_catalog.float8 AS rows, pg_catalog.sum(28 + {payload})::pg_catalog.float8 AS bytes
                  FROM {table} AS r TABLESAMPLE SYSTEM ({percent}) REPEATABLE ({seed})
                 WHERE r.{column} IS NOT NULL GROUP BY 1, r.tableoid, {page}) p
         GROUP BY 1) s
  FULL JOIN (SELECT w.key, pg_catalog.sum(least(w.together, greatest({youngest} - w.younger, 0)) * w.rows / w.together / (1 + w.age)) AS heat
               -- Of many that one transaction has written, each counts for a part.
               FROM (SELECT g.key, g.age, g.rows, pg_catalog.sum(g.rows) OVER (PARTITION BY g.age) AS together,
                            pg_catalog.sum(g.rows) OVER (ORDER BY g.age) - pg_catalog.sum(g.rows) OVER (PARTITION BY g.age) AS younger
                       FROM (SELECT {key} AS key, pg_catalog.age(r.xmin)::pg_catalog.float8 AS age, pg_catalog.count(*)::pg_catalog.float8 AS rows
                               FROM {table} AS r TABLESAMPLE SYSTEM ({percent}) REPEATABLE ({seed})
                              -- One that is negative has been written before numbers of transactions began anew.
                              WHERE r.{column} IS NOT NULL AND pg_catalog.age(r.xmin) >= 0 GROUP BY 1, 2) g) w
              GROUP BY w.key) h ON h.key = s.key
