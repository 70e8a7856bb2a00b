-- Functions whose texts nobody reads here, and that may give out another value each time. $1: names.
SELECT DISTINCT p.proname
  FROM unnest($1::name[]) w (name) JOIN pg_proc p ON p.proname = w.name AND p.oid >= 16384
  JOIN pg_language l ON l.oid = p.prolang
  LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  LEFT JOIN pg_extension x ON x.oid = d.refobjid
 WHERE p.prokind <> 'a' AND (p.provolatile = 'v' AND l.lanname NOT IN ('sql', 'plpgsql') OR l.lanname = 'internal')
   AND p.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
   AND coalesce(x.extname, '') <> ALL ('{uuid-ossp,pgcrypto,pg_uuidv7,pg_idkit,shardmaster,pgx_ulid,ulid}')
