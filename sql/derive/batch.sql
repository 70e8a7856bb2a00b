-- Fills the column in some blocks of a leaf. Rows that somebody has locked are left for the next pass, as are rows that were
-- changed since the statement began.
WITH free AS (
    SELECT t.ctid FROM ONLY {leaf} t WHERE {span} AND t.{column} IS NULL AND NOT ({is_unset}) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE ONLY {leaf} c SET {column} = p.{value} FROM free, {only} {parent} p
 WHERE c.ctid = free.ctid AND {leads_there} AND p.{value} IS NOT NULL
