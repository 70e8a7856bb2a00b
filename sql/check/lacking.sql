-- Which of some rights a side's roles do not have. $1: schemas, $2: tables (NULL: of all), $3: roles, $4: rights, $5: columns, as granted.sql
-- gives them. The number of each from 0, and whether there is such a role.
SELECT g.ord - 1, r.rolname IS NOT NULL OR g.role = 'public'
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS g (nsp, rel, role, privilege, "column", ord)
  LEFT JOIN pg_namespace n ON n.nspname = g.nsp LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = g.rel AND c.relkind IN ('r', 'p')
  LEFT JOIN pg_roles r ON r.rolname = g.role AND g.role <> 'public'
 CROSS JOIN LATERAL (SELECT c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls)
                            AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))) AS s (is_guarded)
 WHERE (g.nsp IS NULL OR c.oid IS NOT NULL) AND NOT coalesce(CASE
           -- Who is not there sees nothing.
           WHEN g.privilege = 'ROW LEVEL SECURITY' THEN r.rolname IS NULL OR NOT c.relrowsecurity OR s.is_guarded
           WHEN g.privilege = 'BYPASSRLS' THEN r.rolname IS NULL OR NOT s.is_guarded
           WHEN r.rolname IS NULL AND g.role <> 'public' THEN false
           WHEN g.privilege = 'nextval' THEN (
               SELECT bool_and(has_sequence_privilege(g.role, s.oid, 'USAGE') OR has_sequence_privilege(g.role, s.oid, 'UPDATE'))
                 FROM pg_attribute a JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
                 JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
                 JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
                WHERE a.attrelid = c.oid AND a.attname = g."column")
           WHEN g.privilege = 'LOGIN' THEN r.rolcanlogin AND r.rolconnlimit <> 0 AND coalesce(r.rolvaliduntil > now(), true)
           WHEN g.privilege IN ('CONNECT', 'TEMPORARY', 'CREATE') THEN has_database_privilege(g.role, current_database(), g.privilege)
           WHEN g.privilege = 'SUPERUSER' THEN r.rolsuper
           WHEN g.privilege IN ('rights of', 'SET ROLE to') THEN (
               SELECT pg_has_role(g.role, m.oid, CASE g.privilege WHEN 'rights of' THEN 'USAGE' ELSE 'MEMBER' END) FROM pg_roles m WHERE m.rolname = g."column")
           -- One that is not there is said of the views. What is to be found by the server itself is refused, where the schema may not be used.
           WHEN g.privilege LIKE 'view % (%)' THEN (
               SELECT has_column_privilege(g.role, v.oid, a.attnum, split_part(g.privilege, ' ', 2)) AND has_schema_privilege(g.role, v.relnamespace, 'USAGE')
                 FROM parse_ident(g."column") i (parts) JOIN pg_namespace o ON o.nspname = i.parts[1]
                 JOIN pg_class v ON v.relname = i.parts[2] AND v.relnamespace = o.oid
                 JOIN pg_attribute a ON a.attrelid = v.oid AND NOT a.attisdropped AND format('(%I)', a.attname) = substring(g.privilege FROM '\(.*'))
           WHEN g.privilege LIKE 'view %' THEN (
               SELECT has_table_privilege(g.role, v.oid, substr(g.privilege, 6)) AND has_schema_privilege(g.role, v.relnamespace, 'USAGE')
                 FROM parse_ident(g."column") i (parts) JOIN pg_namespace o ON o.nspname = i.parts[1]
                 JOIN pg_class v ON v.relname = i.parts[2] AND v.relnamespace = o.oid)
           -- What is not there is said elsewhere.
           WHEN g.privilege = 'EXECUTE of function' THEN (
               SELECT has_function_privilege(g.role, f.oid, 'EXECUTE')
                 FROM parse_ident(substring(g."column" FROM '^((?:"[^"]*"|[^"(])*)\(')) i (parts) JOIN pg_namespace o ON o.nspname = i.parts[1]
                 JOIN pg_proc f ON f.proname = i.parts[2] AND f.pronamespace = o.oid AND f.oid::regprocedure::text = g."column")
           WHEN g.privilege = 'nextval of sequence' THEN (
               SELECT has_sequence_privilege(g.role, s.oid, 'USAGE') OR has_sequence_privilege(g.role, s.oid, 'UPDATE')
                 FROM parse_ident(g."column") i (parts) JOIN pg_namespace o ON o.nspname = i.parts[1]
                 JOIN pg_class s ON s.relname = i.parts[2] AND s.relnamespace = o.oid AND s.relkind = 'S')
           WHEN g.privilege IN ('USAGE of schema', 'CREATE in schema') THEN has_schema_privilege(g.role, to_regnamespace(g."column"), split_part(g.privilege, ' ', 1))
           WHEN g.privilege = 'schema USAGE' THEN has_schema_privilege(g.role, n.oid, 'USAGE')
           WHEN g."column" IS NULL THEN has_table_privilege(g.role, c.oid, g.privilege)
           -- One that is not there is no question of rights.
           ELSE (SELECT has_column_privilege(g.role, c.oid, a.attnum, g.privilege)
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = g."column" AND NOT a.attisdropped)
       END, true)
 ORDER BY 1
