-- Settings of applications that texts over some tables read, and what they are in a session that says nothing of them: defaults, policies,
-- constraints and triggers of the tables, views over them, functions of their schemas and others. $1: schemas, $2: tables, $3, $4: functions
-- in other schemas, by schema and name. Name, value. What the session's own role says is its own.
WITH RECURSIVE wanted AS (
    SELECT c.oid, c.relnamespace
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), reader (oid) AS (
    SELECT w.oid FROM wanted w
    UNION
    SELECT r.ev_class FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), func (oid) AS (
    SELECT f.oid FROM (SELECT DISTINCT w.relnamespace AS oid FROM wanted w) n JOIN pg_proc f ON f.pronamespace = n.oid
    UNION
    SELECT f.oid FROM unnest($3::name[], $4::name[]) AS a (nsp, name) JOIN pg_namespace n ON n.nspname = a.nsp
      JOIN pg_proc f ON f.proname = a.name AND f.pronamespace = n.oid
), said (text) AS (
    SELECT pg_get_expr(e.adbin, e.adrelid) FROM wanted w JOIN pg_attrdef e ON e.adrelid = w.oid
    UNION ALL
    SELECT concat_ws(' ', pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) FROM wanted w JOIN pg_policy p ON p.polrelid = w.oid
    UNION ALL
    SELECT pg_get_expr(k.conbin, k.conrelid) FROM wanted w JOIN pg_constraint k ON k.conrelid = w.oid AND k.contype = 'c'
    UNION ALL
    SELECT pg_get_triggerdef(t.oid) FROM wanted w JOIN pg_trigger t ON t.tgrelid = w.oid AND NOT t.tgisinternal AND t.tgqual IS NOT NULL
    UNION ALL
    SELECT pg_get_viewdef(o.oid) FROM reader o JOIN pg_class c ON c.oid = o.oid AND c.relkind IN ('v', 'm')
    UNION ALL
    SELECT CASE WHEN p.prosrc = '' THEN pg_get_functiondef(p.oid) ELSE p.prosrc END
      FROM func f JOIN pg_proc p ON p.oid = f.oid AND p.prokind <> 'a' AND (p.prosrc = '' OR p.prosrc ~* 'current_setting')
)
SELECT DISTINCT lower(m.names[1]), coalesce(current_setting(m.names[1], true), '')
  FROM said s CROSS JOIN LATERAL regexp_matches(s.text, 'current_setting\s*\(\s*''([a-z_][\w$]*(?:\.[a-z_][\w$]*)+)''', 'gi') AS m (names)
 WHERE NOT EXISTS (SELECT FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c (text)
                    WHERE s.setrole = (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user) AND lower(split_part(c.text, '=', 1)) = lower(m.names[1]))
 ORDER BY 1
