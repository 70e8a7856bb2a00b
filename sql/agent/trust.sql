-- Refuses an agent's schema that somebody else has made, or has put something into: the
-- mover would call it, with its own rights. What belongs to the mover or to a superuser is
-- its own. Runs at the beginning of every session and before anything is created.
DO $trust$
DECLARE
    mover   pg_catalog.oid := (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user);
    problem pg_catalog.text;
BEGIN
    WITH agent AS (
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
        SELECT 1 AS rank, 'schema shardmaster_agent belongs to role %s' AS what, nspowner AS owner FROM agent
        UNION ALL
        SELECT 2, 'role %s may create objects in schema shardmaster_agent', a.grantee
          FROM agent, pg_catalog.aclexplode(agent.nspacl) a
         WHERE a.privilege_type = 'CREATE'
        UNION ALL
        SELECT 3, 'an object in schema shardmaster_agent belongs to role %s: '
                  || pg_catalog.replace(pg_catalog.pg_describe_object(classid, objid, 0), '%', '%%'), owner
          FROM member WHERE is_expected
        UNION ALL
        SELECT 4, 'an object in schema shardmaster_agent is none of the agent''s: '
                  || pg_catalog.replace(pg_catalog.pg_describe_object(classid, objid, 0), '%', '%%'), NULL
          FROM member WHERE is_expected IS NOT TRUE
    )
    SELECT pg_catalog.format(o.what, coalesce(pg_catalog.quote_ident(r.rolname), 'PUBLIC')) INTO problem
      FROM owned o LEFT JOIN pg_catalog.pg_roles r ON r.oid = o.owner
     WHERE o.owner IS NULL OR o.owner <> mover AND r.rolsuper IS NOT TRUE
     ORDER BY o.rank LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '55000',
            MESSAGE = problem,
            DETAIL = 'Who may create objects in a database can make a schema of this name; what is in it would run with the rights of role '
                     || pg_catalog.quote_ident(current_user) || '.',
            HINT = 'If no split has used this database, drop the schema as a superuser; else give what belongs to it to role '
                   || pg_catalog.quote_ident(current_user) || ' and drop the rest.';
    END IF;
END $trust$;
