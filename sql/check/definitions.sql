-- Functions of some names, to be compared with another side's. $1: names, $2: what the schema of the shard's tables is called, NULL
-- where it is called the same on both sides. Number, schema, name, how it is called within its schema, what it is (NULL: an extension's), who may
-- call it besides its owner ('public': everybody; nobody asks that of a trigger's).
SELECT p.oid, n.nspname, p.proname, replace(p.oid::regprocedure::text, quote_ident(n.nspname) || '.', ''),
       CASE WHEN EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e') THEN NULL
            WHEN $2::text IS NULL THEN md5(f.text)
            -- A name is a word of its own.
            ELSE md5(regexp_replace(f.text, '\m' || regexp_replace($2, '(\W)', '\\\1', 'g') || '\M', '', 'g')) END,
       CASE WHEN p.prorettype = 'trigger'::regtype THEN NULL
            ELSE (SELECT json_agg(CASE x.grantee WHEN 0 THEN 'public' ELSE r.rolname END)
                    FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x LEFT JOIN pg_roles r ON r.oid = x.grantee
                   WHERE x.privilege_type = 'EXECUTE' AND x.grantee <> p.proowner AND r.rolsuper IS NOT TRUE) END
  FROM unnest($1::name[]) w (name)
  JOIN pg_proc p ON p.proname = w.name AND p.oid >= 16384
  JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
  JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'shardmaster_agent'
 CROSS JOIN LATERAL (
    -- Whose rights it has.
    SELECT concat_ws(' ', pg_get_functiondef(p.oid), CASE WHEN p.prosecdef THEN 'OWNER ' || p.proowner::regrole::text END)) f (text)
 ORDER BY 2, 4
