-- Whether a relation is a table, with all that a query over it reads: of a view or a foreign table somebody else says what is run. $1: its
-- name, qualified and quoted.
WITH RECURSIVE read (oid) AS (
    SELECT to_regclass($1::text)::oid
    UNION SELECT i.inhrelid FROM read r JOIN pg_inherits i ON i.inhparent = r.oid
)
SELECT bool_and(c.relkind IN ('r', 'p')) FROM read r JOIN pg_class c ON c.oid = r.oid
