-- Fills the column in some blocks of a leaf. Rows that somebody has locked are left for the next pass.
WITH free AS (
    SELECT t.ctid FROM ONLY {leaf} t WHERE {span} AND t.{column} IS NULL FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE ONLY {leaf} c SET {column} = {value} FROM free WHERE c.ctid = free.ctid
