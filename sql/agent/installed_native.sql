-- Whether this shard has the extension in this version, and the mover may have capture's functions made native ones.
SELECT EXISTS (
    SELECT FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                      AND d.classid = 'pg_proc'::regclass
      JOIN pg_proc p ON p.oid = d.objid
     WHERE e.extname = 'shardmaster' AND e.extversion = $1 AND current_setting('server_encoding') = 'UTF8'
       AND p.proname = 'native_capture' AND has_schema_privilege(p.pronamespace, 'USAGE')
       AND has_function_privilege(p.oid, 'EXECUTE'))
