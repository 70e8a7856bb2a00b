-- Default privileges of whoever has made the agent's objects give others rights on them, by which they could have code of theirs run
-- there. Before they are to be seen, nobody else has any.
DO $own$
DECLARE
    given pg_catalog.record;
BEGIN
    FOR given IN
        SELECT 'SCHEMA shardmaster_agent' AS what, a.grantee
          FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
         WHERE n.nspname = 'shardmaster_agent' AND a.grantee <> n.nspowner
        UNION
        SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::pg_catalog.regclass, a.grantee
          FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a
         WHERE c.relnamespace = pg_catalog.to_regnamespace('shardmaster_agent') AND a.grantee <> c.relowner
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s CASCADE', given.what,
                                  CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE given.grantee::pg_catalog.regrole::text END);
    END LOOP;
END $own$;
