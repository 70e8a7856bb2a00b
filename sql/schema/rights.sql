-- Triggers, policies, owners, grants, comments.
SELECT 13, 'trigger', format('%s: %I', m.oid::regclass, t.tgname), m.oid::regclass::text,
       d.definition || s.state,
       d.definition || CASE WHEN s.state = '' THEN '' ELSE format('; ALTER TABLE %s %s TRIGGER %I', m.oid::regclass, substr(s.state, 3), t.tgname) END,
       t.oid::bigint
  FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid
  JOIN own o ON o.classid = 'pg_trigger'::regclass AND o.objid = t.oid
 -- The other form has the table's schema in it.
 CROSS JOIN LATERAL (SELECT pg_get_triggerdef(t.oid, true)) AS d (definition)
 CROSS JOIN LATERAL (SELECT CASE t.tgenabled WHEN 'D' THEN '; DISABLE' WHEN 'R' THEN '; ENABLE REPLICA' WHEN 'A' THEN '; ENABLE ALWAYS' ELSE '' END) AS s (state)
 -- Of a partitioned table's it is a clone.
 WHERE coalesce((to_jsonb(t) ->> 'tgparentid')::oid, 0) = 0
UNION ALL
-- Of a clone its state alone is its own.
SELECT 14, 'trigger of partition', format('%s: %I', m.oid::regclass, t.tgname), m.oid::regclass::text, s.state,
       CASE WHEN 'O' <> ANY (ARRAY[t.tgenabled, p.tgenabled]) THEN format('ALTER TABLE ONLY %s %s TRIGGER %I', m.oid::regclass, s.state, t.tgname) END,
       t.oid::bigint
  FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid
  JOIN own o ON o.classid = 'pg_trigger'::regclass AND o.objid = t.oid
  JOIN pg_trigger p ON p.oid = (to_jsonb(t) ->> 'tgparentid')::oid
 CROSS JOIN LATERAL (SELECT CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END) AS s (state)
UNION ALL
SELECT 13, 'policy', format('%s: %I', m.oid::regclass, p.polname), m.oid::regclass::text, d.definition,
       format('CREATE POLICY %I ON %s %s', p.polname, m.oid::regclass, d.definition), p.oid::bigint
  FROM member m JOIN pg_policy p ON p.polrelid = m.oid
 CROSS JOIN LATERAL (
    SELECT format('AS %s FOR %s TO %s', CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                  CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
                  (SELECT string_agg(CASE WHEN r.oid = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.oid)) END, ', ' ORDER BY r.oid = 0, pg_get_userbyid(r.oid))
                     FROM unnest(p.polroles) AS r (oid)))
           || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '')
           || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', '')) AS d (definition)
UNION ALL
-- A schema's come before those of what is in it: whoever gets that has to be let in.
SELECT CASE g.word WHEN 'SCHEMA' THEN 15 ELSE 17 END, 'owner', format('%s %s', g.word, g.name), g.on_table, quote_ident(pg_get_userbyid(g.owner)),
       format('ALTER %s %s OWNER TO %I', g.word, g.name, pg_get_userbyid(g.owner)), g.number
  FROM granted g WHERE g.owner IS NOT NULL
UNION ALL
SELECT CASE g.word WHEN 'SCHEMA' THEN 16 ELSE 18 END, 'grant', format('%s %s', g.word, g.name) || coalesce('.' || quote_ident(g.column_name), ''), g.on_table,
       format('%s TO %s%s%s', a.privilege_type, r.grantee, r.option, coalesce(' GRANTED BY ' || r.grantor, '')),
       -- What somebody with the grant option has granted goes with it: it is granted by the same role there, which a
       -- GRANT itself cannot say.
       format('%sGRANT %s%s ON %s %s TO %s%s%s', coalesce('SET LOCAL ROLE ' || r.grantor || '; ', ''),
              a.privilege_type, coalesce(' (' || quote_ident(g.column_name) || ')', ''), g.word, g.name, r.grantee, r.option,
              CASE WHEN r.grantor IS NULL THEN '' ELSE '; RESET ROLE' END),
       -- In the order in which they were made: who grants on has the option by one before.
       g.number * 1000000 + a.ordinality
  FROM granted g
 CROSS JOIN LATERAL aclexplode(g.acl) WITH ORDINALITY AS a
 CROSS JOIN LATERAL (SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
                            CASE WHEN a.grantor <> g.of_owner THEN quote_ident(pg_get_userbyid(a.grantor)) END,
                            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) AS r (grantee, grantor, option)
 WHERE a.grantee <> g.of_owner
   AND NOT EXISTS (SELECT 1 FROM aclexplode(acldefault(g.kind, g.of_owner)) AS b
                    WHERE g.column_name IS NULL AND b.grantee = a.grantee AND b.privilege_type = a.privilege_type AND b.is_grantable = a.is_grantable)
UNION ALL
-- What everybody may, and the owner, unless it is taken away.
SELECT CASE g.word WHEN 'SCHEMA' THEN 16 ELSE 18 END, 'revoke', format('%s %s', g.word, g.name), g.on_table, format('%s FROM %s', b.privilege_type, r.grantee),
       format('REVOKE %s ON %s %s FROM %s', b.privilege_type, g.word, g.name, r.grantee), g.number
  FROM granted g CROSS JOIN LATERAL aclexplode(acldefault(g.kind, g.of_owner)) AS b
 CROSS JOIN LATERAL (SELECT CASE WHEN b.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(b.grantee)) END) AS r (grantee)
 WHERE g.acl IS NOT NULL AND g.column_name IS NULL
   AND NOT EXISTS (SELECT 1 FROM aclexplode(g.acl) AS a WHERE a.grantee = b.grantee AND a.privilege_type = b.privilege_type)
UNION ALL
SELECT 19, 'comment', t.what, t.on_table, d.description, format('COMMENT ON %s IS %L', t.what, d.description), t.number
  FROM (SELECT format('TABLE %s', m.oid::regclass), m.oid::regclass::text, 'pg_class'::regclass::oid, m.oid, 0, m.oid::bigint FROM member m
        UNION ALL
        SELECT format('COLUMN %s.%I', m.oid::regclass, c.attname), m.oid::regclass::text, 'pg_class'::regclass, m.oid, c.attnum, m.oid::bigint
          FROM member m JOIN column_of c ON c.attrelid = m.oid
        UNION ALL
        SELECT format('CONSTRAINT %I ON %s', k.conname, m.oid::regclass), m.oid::regclass::text, 'pg_constraint'::regclass, k.oid, 0, k.oid::bigint
          FROM member m JOIN pg_constraint k ON k.conrelid = m.oid
        UNION ALL
        SELECT format('INDEX %s', i.indexrelid::regclass), m.oid::regclass::text, 'pg_class'::regclass, i.indexrelid, 0, i.indexrelid::bigint
          FROM member m JOIN pg_index i ON i.indrelid = m.oid
        UNION ALL
        SELECT format('TRIGGER %I ON %s', x.tgname, m.oid::regclass), m.oid::regclass::text, 'pg_trigger'::regclass, x.oid, 0, x.oid::bigint
          FROM member m JOIN pg_trigger x ON x.tgrelid = m.oid JOIN own o ON o.classid = 'pg_trigger'::regclass AND o.objid = x.oid
        UNION ALL
        SELECT format('POLICY %I ON %s', p.polname, m.oid::regclass), m.oid::regclass::text, 'pg_policy'::regclass, p.oid, 0, p.oid::bigint
          FROM member m JOIN pg_policy p ON p.polrelid = m.oid
        UNION ALL
        SELECT format('STATISTICS %s', g.name), g.on_table, 'pg_statistic_ext'::regclass, g.number::oid, 0, g.number FROM granted g WHERE g.word = 'STATISTICS'
        UNION ALL
        SELECT format('CONSTRAINT %I ON DOMAIN %s', k.conname, u.oid::regtype), NULL, 'pg_constraint'::regclass, k.oid, 0, k.oid::bigint
          FROM made_type u JOIN pg_constraint k ON k.contypid = u.oid
        UNION ALL
        SELECT format('COLUMN %s.%I', u.oid::regtype, a.attname), NULL, 'pg_class'::regclass, u.typrelid, a.attnum, u.oid::bigint
          FROM made_type u JOIN pg_attribute a ON a.attrelid = u.typrelid AND a.attnum > 0 AND NOT a.attisdropped WHERE u.typtype = 'c'
        UNION ALL SELECT format('TYPE %s', u.oid::regtype), NULL, 'pg_type'::regclass, u.oid, 0, u.oid::bigint FROM made_type u
        UNION ALL SELECT format('FUNCTION %s', f.oid::regprocedure), NULL, 'pg_proc'::regclass, f.oid, 0, f.oid::bigint FROM made_function f
        UNION ALL SELECT format('SEQUENCE %s', s.oid::regclass), NULL, 'pg_class'::regclass, s.oid, 0, s.oid::bigint FROM made_sequence s
       ) AS t (what, on_table, classid, objid, objsubid, number)
  JOIN pg_description d ON d.classoid = t.classid AND d.objoid = t.objid AND d.objsubid = t.objsubid
