-- What the expression of the temporary view is made of beside the values of its row. The
-- server keeps views parsed, functions and columns by number; texts are in no such form.
WITH parsed AS (
    SELECT ev_action::text AS tree FROM pg_rewrite
     WHERE ev_class = 'pg_temp.shardmaster_expression'::regclass
)
SELECT 'a sub-select' FROM parsed WHERE tree ~ ':hasSubLinks true'
UNION ALL
SELECT 'a system column' FROM parsed WHERE tree ~ ':varattno -\d'
UNION ALL
SELECT 'the volatile function ' || p.oid::regprocedure
  FROM parsed, regexp_matches(tree, ':(?:op)?funcid (\d+)', 'g') found
  JOIN pg_proc p ON p.oid = found[1]::oid
 WHERE p.provolatile = 'v'
ORDER BY 1 LIMIT 1
