-- A range that comes to the list of a key guard: what it overlaps or touches there is one
-- with it, so that no two ranges of the list do. lower, upper: its bounds; NULL: there is none.
-- touched: which ranges of the list, l, do.
WITH gone AS (
    DELETE FROM {table} l WHERE {touched} RETURNING l.lower, l.upper
), parts (lower, upper) AS (
    SELECT lower, upper FROM gone UNION ALL SELECT {lower}, {upper}
)
INSERT INTO {table} (lower, upper)
SELECT (SELECT p.lower FROM parts p ORDER BY p.lower NULLS FIRST LIMIT 1),
       (SELECT p.upper FROM parts p ORDER BY p.upper DESC NULLS FIRST LIMIT 1)
