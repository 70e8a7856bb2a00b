-- What makes sequences anew elsewhere. $1: their numbers. Number, type, increment, least and greatest value, start, cache, owner,
-- rights of others as JSON: role (null: everybody) and privilege.
SELECT s.oid, q.seqtypid::regtype, q.seqincrement, q.seqmin, q.seqmax, q.seqstart, q.seqcache, o.rolname,
       (SELECT json_agg(json_build_array(r.rolname, x.privilege_type) ORDER BY r.rolname, x.privilege_type)
          FROM aclexplode(s.relacl) x LEFT JOIN pg_roles r ON r.oid = x.grantee
         WHERE x.grantee <> s.relowner AND (x.grantee = 0 OR r.oid IS NOT NULL))
  FROM unnest($1::oid[]) w (oid)
  JOIN pg_class s ON s.oid = w.oid AND s.relkind = 'S'
  JOIN pg_sequence q ON q.seqrelid = s.oid
  JOIN pg_roles o ON o.oid = s.relowner
