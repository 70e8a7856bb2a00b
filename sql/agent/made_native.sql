-- The tables of a split whose capture functions are native ones, by their numbers.
SELECT (regexp_match(p.proname, '^capture_\d+_(\d+)$'))[1]
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = to_regnamespace('shardmaster_agent') AND starts_with(p.proname, $1) AND l.lanname = 'c'
