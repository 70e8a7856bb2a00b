-- What is in the agent's schema that is neither the mover's nor a superuser's, or the right of
-- another to put something into it; NULL: nothing is.
(WITH agent AS (
    SELECT oid, nspowner, nspacl FROM pg_catalog.pg_namespace WHERE nspname = 'shardmaster_agent'
), member AS (
    SELECT d.classid, d.objid,
           coalesce(c.relowner, p.proowner, t.typowner) AS owner,
           c.relkind IN ('r', 'S') OR p.prokind = 'f' AS is_expected
      FROM agent
      JOIN pg_catalog.pg_depend d
        ON d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND d.refobjid = agent.oid
      LEFT JOIN pg_catalog.pg_class c
        ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid
      LEFT JOIN pg_catalog.pg_proc p
        ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND p.oid = d.objid
      LEFT JOIN pg_catalog.pg_type t
        ON d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND t.oid = d.objid
), owned AS (
    -- A superuser has made it, and somebody else is the mover by now.
    SELECT 0 AS rank, 'role ' || pg_catalog.replace(pg_catalog.quote_ident(current_user), '%', '%%')
                      || ' cannot use schema shardmaster_agent, which belongs to role %s' AS what, a.nspowner AS owner,
           NULL::pg_catalog.oid AS classid, NULL::pg_catalog.oid AS objid
      FROM agent a JOIN pg_catalog.pg_roles s ON s.oid = a.nspowner AND s.rolsuper
     WHERE NOT pg_catalog.has_schema_privilege(a.oid, 'USAGE')
    UNION ALL
    SELECT 1, 'schema shardmaster_agent belongs to role %s', nspowner, NULL, NULL FROM agent
    UNION ALL
    SELECT 2, 'role %s can create objects in schema shardmaster_agent', a.grantee, NULL, NULL
      FROM agent, pg_catalog.aclexplode(agent.nspacl) a
     WHERE a.privilege_type = 'CREATE'
    UNION ALL
    -- What it is called is looked for where it is one, and not of each.
    SELECT 3, 'an object in schema shardmaster_agent belongs to role %s: ', owner, classid, objid
      FROM member WHERE is_expected
    UNION ALL
    SELECT 4, 'an object in schema shardmaster_agent is not one of the agent''s: ', NULL, classid, objid
      FROM member WHERE is_expected IS NOT TRUE
    UNION ALL
    SELECT 5, 'trigger ' || pg_catalog.replace(pg_catalog.quote_ident(t.tgname), '%', '%%') || ' of table '
              || pg_catalog.replace(t.tgrelid::pg_catalog.regclass::text, '%', '%%') || ' is not one of the agent''s', NULL, NULL, NULL
      FROM agent JOIN pg_catalog.pg_class c ON c.relnamespace = agent.oid AND c.relkind = 'r'
      JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
      JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid AND p.pronamespace <> agent.oid
)
SELECT pg_catalog.format(o.what || coalesce(pg_catalog.replace(pg_catalog.pg_describe_object(o.classid, o.objid, 0), '%', '%%'), ''),
                         coalesce(pg_catalog.quote_ident(r.rolname), 'PUBLIC'))
  FROM owned o LEFT JOIN pg_catalog.pg_roles r ON r.oid = o.owner
 WHERE o.rank = 0 OR o.owner IS NULL OR o.owner <> (SELECT pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))) AND r.rolsuper IS NOT TRUE
 ORDER BY o.rank LIMIT 1)
