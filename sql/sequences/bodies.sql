-- What functions are made of, where that can be read. $1: their numbers, $2: other names, of whatever functions have them.
-- Number, how it is called in SQL, its name, its settings (a search_path), the defaults of its parameters and its text, and the functions and sequences that
-- these defaults need, or a body of standard SQL, or an aggregate; its language, and what its parameters are called.
SELECT p.oid, p.oid::regprocedure, p.proname, concat_ws(' ', array_to_string(p.proconfig, ' '), pg_get_expr(p.proargdefaults, 0), left(CASE WHEN p.prosrc = '' THEN pg_get_functiondef(p.oid) ELSE p.prosrc END, 200000)),
       CASE WHEN p.prosrc = '' OR p.pronargdefaults > 0 THEN (
           SELECT array_agg(d.refobjid::text) FROM pg_depend d
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_proc'::regclass) END,
       CASE WHEN p.prosrc = '' OR p.pronargdefaults > 0 THEN (
           SELECT array_agg(d.refobjid::text) FROM pg_depend d JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass) END,
       l.lanname, array_to_string(p.proargnames, ' ')
  FROM (SELECT unnest($1::oid[]) UNION SELECT f.oid FROM unnest($2::name[]) w (name) JOIN pg_proc f ON f.proname = w.name) w (oid)
  JOIN pg_proc p ON p.oid = w.oid AND p.oid >= 16384
  JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
 WHERE p.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent') AND p.prokind <> 'a'
UNION ALL
SELECT a.aggfnoid::oid, a.aggfnoid::oid::regprocedure, p.proname, '',
       (SELECT array_agg(f.oid::text) FROM unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[]) f (oid) WHERE f.oid >= 16384),
       NULL, 'sql', NULL
  FROM (SELECT unnest($1::oid[]) UNION SELECT f.oid FROM unnest($2::name[]) w (name) JOIN pg_proc f ON f.proname = w.name) w (oid)
  JOIN pg_proc p ON p.oid = w.oid AND p.oid >= 16384 AND p.prokind = 'a'
  JOIN pg_aggregate a ON a.aggfnoid = p.oid
 ORDER BY 1
