-- Functions that may write to tables, whoever calls them: clients, triggers of other tables, and views that show nothing of the
-- tables. $1: tables, $2: how many functions at most. Position of the table, counted from 1, column (never known), who calls it, the
-- function's number. Texts are gone through for all names at once: for each name anew, thousands of functions took seconds.
WITH w AS MATERIALIZED (
    SELECT u.position, u.relation, lower(t.relname::text) AS name FROM unnest($1::oid[]) WITH ORDINALITY u (relation, position)
      JOIN pg_class t ON t.oid = u.relation
), names AS MATERIALIZED (
    SELECT '\m(' || string_agg(DISTINCT regexp_replace(name, '([^[:alnum:]_])', '\\\1', 'g'), '|') || ')\M' AS pattern FROM w
)
SELECT w.position, NULL, 'a client''s call', p.oid
  FROM names
 CROSS JOIN LATERAL (
    SELECT f.oid, f.prosrc FROM pg_proc f JOIN pg_language l ON l.oid = f.prolang
     WHERE f.oid >= 16384 AND l.lanname NOT IN ('internal', 'c') AND f.prosrc ~* 'insert|update|merge' AND f.prosrc ~* names.pattern
       AND f.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
       AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = f.oid AND e.deptype = 'e')
     LIMIT $2::int) p
 CROSS JOIN LATERAL (SELECT DISTINCT lower(m[1]) FROM regexp_matches(p.prosrc, names.pattern, 'gi') m) n (name)
  JOIN w ON w.name = n.name
UNION
-- Of bodies of standard SQL the server knows it.
SELECT w.position, NULL, 'a client''s call', d.objid
  FROM w JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relation AND d.classid = 'pg_proc'::regclass
 ORDER BY 4, 1
