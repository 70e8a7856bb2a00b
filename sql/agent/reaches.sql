-- What an object r of the catalog reaches when it is called or computed. References to what
-- came with initdb are not in pg_depend. By the catalogs' indexes where there are some.
SELECT d.refclassid, d.refobjid FROM pg_depend d
 WHERE d.classid = r.classid AND d.objid = r.objid
   AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_type'::regclass)
UNION ALL
SELECT 'pg_operator'::regclass, other
  FROM pg_operator o CROSS JOIN unnest(ARRAY[o.oprcom, o.oprnegate]) other
 WHERE r.classid = 'pg_operator'::regclass AND o.oid = r.objid AND other >= 16384
UNION ALL
SELECT 'pg_proc'::regclass, p.amproc FROM pg_opclass c JOIN pg_amproc p ON p.amprocfamily = c.opcfamily
 WHERE r.classid = 'pg_opclass'::regclass AND c.oid = r.objid AND p.amproc >= 16384
UNION ALL
SELECT 'pg_operator'::regclass, o.amopopr FROM pg_opclass c JOIN pg_amop o ON o.amopfamily = c.opcfamily
 WHERE r.classid = 'pg_opclass'::regclass AND c.oid = r.objid AND o.amopopr >= 16384
UNION ALL
SELECT 'pg_class'::regclass, t.typrelid FROM pg_type t
 WHERE r.classid = 'pg_type'::regclass AND t.oid = r.objid AND t.typrelid <> 0
UNION ALL
-- What functions of the server make of a value without naming its type: an array of such
-- values. The reverse split is in pg_depend.
SELECT 'pg_type'::regclass, t.typarray FROM pg_type t
 WHERE r.classid = 'pg_type'::regclass AND t.oid = r.objid AND t.typarray >= 16384
UNION ALL
SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k
 WHERE r.classid = 'pg_type'::regclass AND k.contypid = r.objid
UNION ALL
SELECT 'pg_opclass'::regclass, c.oid FROM pg_opclass c
 WHERE r.classid = 'pg_type'::regclass AND c.opcintype = r.objid
UNION ALL
-- What a value becomes as a text, or as JSON, may be a cast's doing.
SELECT 'pg_proc'::regclass, c.castfunc FROM pg_cast c
 WHERE r.classid = 'pg_type'::regclass AND r.objid IN (c.castsource, c.casttarget) AND c.castfunc >= 16384
UNION ALL
-- Of a type that an array without elements alone names, or a query over JSON, pg_depend knows nothing.
SELECT 'pg_type'::regclass, f.found[1]::oid
  FROM (SELECT k.conbin::text FROM pg_constraint k WHERE r.classid = 'pg_constraint'::regclass AND k.oid = r.objid
        UNION ALL SELECT t.typdefaultbin::text FROM pg_type t WHERE r.classid = 'pg_type'::regclass AND t.oid = r.objid
        -- One with a body of SQL has no other text.
        UNION ALL SELECT to_jsonb(p) ->> 'prosqlbody' FROM pg_proc p WHERE r.classid = 'pg_proc'::regclass AND p.oid = r.objid AND p.prosrc = '') AS x (tree)
 CROSS JOIN regexp_matches(x.tree, ':(?:array_typeid|element_typeid|typid) (\d+)', 'g') AS f (found)
 WHERE f.found[1]::oid >= 16384
