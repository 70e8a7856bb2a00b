-- Functions that clients or triggers may call, and how they write: those of extensions are their own affair. $1: how many at most, $2: how long all texts
-- together. Number, name, text, in small letters; NULL: those before it are that long.
SELECT f.oid, f.name, CASE WHEN sum(length(f.text)) OVER (ORDER BY f.oid) <= $2::bigint THEN lower(f.text) END
  FROM (
SELECT f.oid, lower(f.proname) AS name, left(CASE WHEN f.prosrc = '' THEN pg_get_functiondef(f.oid) ELSE f.prosrc END, 200000) AS text
  FROM pg_proc f JOIN pg_language l ON l.oid = f.prolang
 WHERE f.oid >= 16384 AND l.lanname NOT IN ('internal', 'c') AND f.prokind <> 'a'
   AND f.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
   AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = f.oid AND e.deptype = 'e')
 ORDER BY f.oid LIMIT $1::int) f
 ORDER BY f.oid
