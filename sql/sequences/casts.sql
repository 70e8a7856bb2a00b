-- Functions that run without being named: of operators, which texts have by their signs, and of casts, of whose types texts have the names. Of what
-- extensions bring, nothing draws. The sign or the name; the function's number.
SELECT y.typname, k.castfunc FROM pg_cast k JOIN pg_type y ON y.oid = CASE WHEN k.castsource >= 16384 THEN k.castsource ELSE k.casttarget END WHERE k.oid >= 16384 AND k.castfunc >= 16384 AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = k.oid AND d.deptype = 'e')
UNION ALL
SELECT o.oprname, o.oprcode FROM pg_operator o WHERE o.oid >= 16384 AND o.oprcode >= 16384 AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e')
 ORDER BY 1, 2
