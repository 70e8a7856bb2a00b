-- Functions in the expression of the temporary view that find what they name by the caller's
-- search_path: bodies that are texts, without SET search_path. Name, and its number if its
-- body is SQL and can be tried.
WITH parsed AS (
    SELECT ev_action::text AS tree FROM pg_rewrite
     WHERE ev_class = 'pg_temp.shardmaster_expression'::regclass
)
SELECT DISTINCT p.oid::regprocedure::text, CASE WHEN l.lanname = 'sql' THEN p.oid END
  FROM parsed, regexp_matches(tree, ':(?:op)?funcid (\d+)', 'g') found
  JOIN pg_proc p ON p.oid = found[1]::oid JOIN pg_language l ON l.oid = p.prolang
 WHERE l.lanname NOT IN ('internal', 'c') AND p.oid >= 16384 AND p.prosrc <> ''
   AND NOT coalesce(array_to_string(p.proconfig, ',') ~ '(^|,)search_path=', false)
 ORDER BY 1
