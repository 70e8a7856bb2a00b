-- The schema of this extension, where the shard has it and the mover may call its hash,
-- which takes the bytes of a text as they are: they must be UTF-8. Statements name it by its schema: not one that somebody else
-- could rename, to give its name to another one.
SELECT quote_ident(n.nspname)
  FROM pg_extension e
  JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'shardmaster' AND current_setting('server_encoding') = 'UTF8'
   AND EXISTS (SELECT FROM pg_roles r
                WHERE r.oid = CASE WHEN n.nspowner = to_regrole('pg_database_owner')
                                   THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE n.nspowner END
                  AND (r.rolsuper OR r.rolname = current_user))
   AND has_schema_privilege(n.oid, 'USAGE')
   AND 3 = (SELECT count(*) FROM pg_proc p
              JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                              AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
             WHERE p.proname = 'shard_for' AND p.pronamespace = n.oid AND has_function_privilege(p.oid, 'EXECUTE'))
