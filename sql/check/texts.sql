-- What functions say that may be over a side's tables, and what the tables and views over them are called. $1: schemas, $2: tables,
-- $3: schemas of other shards, $4: how many functions. Kind ("relation"; "other": another one of that name; "function"), schema, name; of a
-- function whether something of a table calls it, whether it is in a schema of the tables, and its text with its settings.
WITH RECURSIVE wanted AS (
    SELECT c.oid, c.relnamespace
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), reader (oid) AS (
    SELECT w.oid FROM wanted w
    UNION
    SELECT r.ev_class FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), part (classid, objid) AS (
    SELECT 'pg_attrdef'::regclass::oid, e.oid FROM wanted w JOIN pg_attrdef e ON e.adrelid = w.oid
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM wanted w JOIN pg_constraint k ON k.conrelid = w.oid AND k.contype = 'c'
    UNION ALL SELECT 'pg_policy'::regclass, y.oid FROM wanted w JOIN pg_policy y ON y.polrelid = w.oid
), called (oid) AS MATERIALIZED (
    SELECT g.tgfoid::oid FROM reader o JOIN pg_trigger g ON g.tgrelid = o.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
    UNION
    SELECT d.refobjid FROM part p JOIN pg_depend d ON d.classid = p.classid AND d.objid = p.objid AND d.refclassid = 'pg_proc'::regclass
), own (oid) AS MATERIALIZED (
    SELECT DISTINCT w.relnamespace FROM wanted w
)
SELECT 'relation', n.nspname, c.relname, NULL::boolean, NULL::boolean, NULL::text
  FROM reader o JOIN pg_class c ON c.oid = o.oid JOIN pg_namespace n ON n.oid = c.relnamespace
UNION ALL
SELECT 'other', n.nspname, c.relname, NULL, NULL, NULL
  FROM (SELECT DISTINCT k.relname FROM reader o JOIN pg_class k ON k.oid = o.oid) k
  JOIN pg_class c ON c.relname = k.relname AND c.relkind IN ('r', 'p', 'v', 'm', 'f') JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid NOT IN (SELECT o.oid FROM reader o)
UNION ALL
SELECT 'function', f.nspname, f.proname, f.is_called, f.is_own, f.text
  FROM (
    SELECT n.nspname, p.proname, p.oid IN (SELECT c.oid FROM called c) AS is_called, p.pronamespace IN (SELECT o.oid FROM own o) AS is_own,
           concat_ws(' ', array_to_string(p.proconfig, ' '), left(CASE WHEN p.prosrc = '' THEN pg_get_functiondef(p.oid) ELSE p.prosrc END, 200000)) AS text
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'shardmaster_agent')
      JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
     WHERE p.oid >= 16384 AND p.prokind <> 'a' AND n.nspname <> ALL ($3::text[])
       AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
     ORDER BY 3 DESC, 4 DESC, p.oid LIMIT $4::bigint) f
