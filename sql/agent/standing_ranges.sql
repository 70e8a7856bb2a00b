-- A range that comes to the list of a standing guard: what it overlaps or touches there is one
-- with it, so that no two ranges of the list do. lower, upper: its bounds; NULL: there is none.
WITH wanted (lower, upper) AS (
    SELECT {lower}, {upper}
), gone AS (
    DELETE FROM {table} l USING wanted w
     WHERE (w.upper IS NULL OR l.lower IS NULL OR l.lower OPERATOR(pg_catalog.<=) w.upper)
       AND (w.lower IS NULL OR l.upper IS NULL OR w.lower OPERATOR(pg_catalog.<=) l.upper)
    RETURNING l.lower, l.upper
), parts (lower, upper) AS (
    SELECT lower, upper FROM gone UNION ALL SELECT lower, upper FROM wanted
)
INSERT INTO {table} (lower, upper)
SELECT (SELECT p.lower FROM parts p ORDER BY p.lower NULLS FIRST LIMIT 1),
       (SELECT p.upper FROM parts p ORDER BY p.upper DESC NULLS FIRST LIMIT 1)
