-- Which roles may read and write a side's tables, and what they bring there. $1: schemas, $2: tables. Position of the table (NULL: all of them),
-- role ('public': everybody), right; its column, or the column whose sequence it is about (NULL: the table); of a view its name, of a
-- membership the role, of a setting its name; and a setting's value. Settings of no role are the database's.
WITH RECURSIVE wanted AS (
    SELECT w.ord - 1 AS position, c.oid, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity, n.nspowner, n.nspacl
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), reader (position, oid) AS (
    -- The tables, views over them, and views over those.
    SELECT w.position, w.oid FROM wanted w
    UNION
    SELECT o.position, r.ev_class
      FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), given AS (
    SELECT w.position, x.grantee, x.privilege_type, NULL::text AS "column"
      FROM wanted w CROSS JOIN aclexplode(coalesce(w.relacl, acldefault('r', w.relowner))) x
    UNION
    SELECT w.position, x.grantee, x.privilege_type, a.attname
      FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND a.attacl IS NOT NULL AND NOT a.attisdropped
     CROSS JOIN aclexplode(a.attacl) x
    UNION
    -- What a default draws from. An identity needs no right.
    SELECT w.position, x.grantee, 'nextval', a.attname
      FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.atthasdef JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
      JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
      JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
     CROSS JOIN aclexplode(coalesce(s.relacl, acldefault('s', s.relowner))) x
     WHERE x.privilege_type IN ('USAGE', 'UPDATE')
    UNION
    -- Of who has a right on the table.
    SELECT w.position, x.grantee, 'schema USAGE', NULL
      FROM wanted w CROSS JOIN aclexplode(coalesce(w.nspacl, acldefault('n', w.nspowner))) x
     WHERE x.privilege_type = 'USAGE'
       AND (x.grantee = 0 OR EXISTS (SELECT FROM aclexplode(coalesce(w.relacl, acldefault('r', w.relowner))) t WHERE t.grantee = x.grantee))
    UNION
    SELECT v.position, x.grantee, 'view ' || x.privilege_type, format('%I.%I', n.nspname, c.relname)
      FROM (SELECT min(o.position) AS position, o.oid FROM reader o GROUP BY o.oid) v
      JOIN pg_class c ON c.oid = v.oid AND c.relkind IN ('v', 'm') AND c.relpersistence <> 't' JOIN pg_namespace n ON n.oid = c.relnamespace
     CROSS JOIN aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
     WHERE x.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND (x.grantee = 0 OR has_schema_privilege(x.grantee, n.oid, 'USAGE'))
    UNION
    SELECT v.position, x.grantee, format('view %s (%I)', x.privilege_type, a.attname), format('%I.%I', n.nspname, c.relname)
      FROM (SELECT min(o.position) AS position, o.oid FROM reader o GROUP BY o.oid) v
      JOIN pg_class c ON c.oid = v.oid AND c.relkind IN ('v', 'm') AND c.relpersistence <> 't' JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND a.attacl IS NOT NULL AND NOT a.attisdropped
     CROSS JOIN aclexplode(a.attacl) x
     WHERE x.privilege_type IN ('SELECT', 'INSERT', 'UPDATE') AND (x.grantee = 0 OR has_schema_privilege(x.grantee, n.oid, 'USAGE'))
), held (oid, via) AS (
    -- Who has such a right, and who is a member of such a role.
    SELECT r.oid, r.oid FROM (SELECT DISTINCT g.grantee FROM given g) g JOIN pg_roles r ON r.oid = g.grantee AND NOT r.rolsuper
    UNION
    SELECT r.oid, r.oid FROM pg_roles r WHERE r.rolname IN ('pg_read_all_data', 'pg_write_all_data')
    UNION
    -- Or is who a policy is for.
    SELECT r.oid, r.oid FROM wanted w JOIN pg_policy p ON p.polrelid = w.oid CROSS JOIN unnest(p.polroles) AS t (oid) JOIN pg_roles r ON r.oid = t.oid
     WHERE NOT r.rolsuper
    UNION
    SELECT m.member, h.via FROM held h JOIN pg_auth_members m ON m.roleid = h.oid
), client AS (
    -- Neither the mover nor roles of the server's own.
    SELECT h.oid, h.via, r.rolname, r.rolbypassrls, r.rolcanlogin AND r.rolconnlimit <> 0 AND coalesce(r.rolvaliduntil > now(), true) AS is_login
      FROM held h JOIN pg_roles r ON r.oid = h.oid AND NOT r.rolsuper AND r.rolname <> current_user AND r.rolname !~ '^pg_'
), said AS (
    -- That of the role in the database first.
    SELECT DISTINCT ON (s.setrole, 2) s.setrole, lower(split_part(c.text, '=', 1)) AS name, substr(c.text, strpos(c.text, '=') + 1) AS value
      FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c (text)
     WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
       AND (s.setrole = 0 OR s.setrole IN (SELECT l.oid FROM client l))
     ORDER BY s.setrole, 2, s.setdatabase DESC
)
SELECT g.position, CASE WHEN g.grantee = 0 THEN 'public' ELSE r.rolname END, g.privilege_type, g."column", NULL
  FROM given g LEFT JOIN pg_roles r ON r.oid = g.grantee
 WHERE (g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'nextval', 'schema USAGE') OR g.privilege_type LIKE 'view %')
   -- Who passes all checks passes them there, or is somebody else.
   AND (g.grantee = 0 OR NOT r.rolsuper)
UNION ALL
SELECT DISTINCT w.position, l.rolname, CASE WHEN l.rolbypassrls OR NOT w.relforcerowsecurity AND pg_has_role(l.oid, w.relowner, 'USAGE')
                                   THEN 'BYPASSRLS' ELSE 'ROW LEVEL SECURITY' END, NULL, NULL
  FROM wanted w JOIN client l ON w.relrowsecurity
UNION ALL
SELECT DISTINCT NULL::bigint, l.rolname, r.name, NULL, NULL
  FROM client l JOIN (VALUES ('LOGIN'), ('CONNECT'), ('TEMPORARY'), ('CREATE')) AS r (name) ON l.is_login
 WHERE r.name = 'LOGIN' OR has_database_privilege(l.oid, current_database(), r.name)
UNION ALL
-- One passes all checks. The server's own is its administrator's, and the mover is no client.
SELECT NULL, r.rolname, 'SUPERUSER', NULL, NULL
  FROM pg_roles r WHERE r.rolsuper AND r.rolcanlogin AND r.oid >= 16384 AND r.rolname <> current_user
UNION ALL
SELECT NULL, l.rolname, CASE WHEN pg_has_role(l.oid, l.via, 'USAGE') THEN 'rights of' ELSE 'SET ROLE to' END, v.rolname, NULL
  FROM client l JOIN pg_roles v ON v.oid = l.via AND l.via <> l.oid AND l.is_login
UNION ALL
-- Not what bounds time and memory, goes to a log, or says where new tables are.
SELECT NULL, CASE s.setrole WHEN 0 THEN '' ELSE (SELECT r.rolname FROM pg_roles r WHERE r.oid = s.setrole) END, 'setting', s.name, s.value
  FROM said s LEFT JOIN pg_settings p ON lower(p.name) = s.name
 WHERE coalesce(p.category, '') ~ '^($|Client Connection Defaults|Version and Platform|Customized)'
   AND s.name !~ '_timeout$|^vacuum_|^gin_|^temp_|^default_ta|^default_toast_|^client_min_messages$|^(auto_explain|pg_stat_statements|shardmaster)\.'
UNION ALL
SELECT NULL, '', 'setting', s.name, s.value
  FROM pg_database d CROSS JOIN LATERAL to_jsonb(d) AS j (facts)
 CROSS JOIN LATERAL (VALUES ('lc_collate', d.datcollate::text), ('lc_ctype', d.datctype::text),
                            ('icu_locale', coalesce(j.facts ->> 'datlocale', j.facts ->> 'daticulocale'))) AS s (name, value)
 WHERE d.datname = current_database() AND s.value IS NOT NULL
UNION ALL
-- What sessions begin with that say nothing, but for what the mover's role says of its own.
SELECT NULL, '', 'server setting', lower(p.name), p.reset_val
  FROM pg_settings p
 WHERE lower(p.name) IN ('search_path', 'timezone', 'datestyle', 'intervalstyle', 'default_transaction_isolation', 'default_transaction_read_only',
                         'default_transaction_deferrable', 'standard_conforming_strings', 'backslash_quote', 'extra_float_digits', 'bytea_output',
                         'lc_monetary', 'lc_numeric', 'lc_time', 'default_text_search_config', 'row_security', 'session_replication_role',
                         'xmloption', 'xmlbinary', 'transform_null_equals', 'array_nulls', 'lo_compat_privileges', 'timezone_abbreviations',
                         'quote_all_identifiers', 'max_prepared_transactions')
   AND NOT EXISTS (SELECT FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c (text)
                    WHERE s.setrole = (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user) AND lower(split_part(c.text, '=', 1)) = lower(p.name))
UNION ALL
SELECT NULL, '', 'server setting', 'plpgsql.variable_conflict', coalesce(nullif(current_setting('plpgsql.variable_conflict', true), ''), 'error')
 ORDER BY 1, 2, 3, 4
