-- What fills columns of tables where clients write through views, or through rules of other relations: their defaults, their
-- triggers' functions and what these are told, and rules. Rules of the tables themselves are refused elsewhere. $1: tables.
-- Position of the table, counted from 1, column (never known), what draws, the function's number, the text, the sequence's number,
-- the columns that it may fill.
SELECT DISTINCT w.position, NULL, f.what, coalesce(o.oprcode::oid, f.function), f.text, f.sequence, f.fills
  FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
 CROSS JOIN LATERAL (
    WITH RECURSIVE shown (relation) AS (
        SELECT w.relation
        UNION SELECT p.relid::oid FROM pg_partition_tree(w.relation) p
        UNION
        SELECT r.ev_class FROM shown s
          JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.relation AND d.classid = 'pg_rewrite'::regclass
          JOIN pg_rewrite r ON r.oid = d.objid
    )
    SELECT v.oid, v.relkind, format('%s %s', CASE v.relkind WHEN 'v' THEN 'view' ELSE 'table' END, v.oid::regclass),
           -- Its rules' columns are those of what it shows.
           (SELECT array_agg(DISTINCT a.attname) FROM pg_rewrite r
              JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
              JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
             WHERE r.ev_class = v.oid AND d.refobjid <> v.oid)
      FROM shown s JOIN pg_class v ON v.oid = s.relation
     WHERE v.relkind = 'v'
        OR v.relkind = 'r' AND v.oid <> w.relation AND NOT v.relispartition
           AND EXISTS (SELECT 1 FROM pg_rewrite r WHERE r.ev_class = v.oid AND r.ev_type IN ('2', '3', '4'))
    OFFSET 0) v (relation, kind, name, shows)
 CROSS JOIN LATERAL (
    SELECT format('the default of column %I of %s', a.attname, v.name), p.refclassid,
           CASE WHEN p.refclassid <> 'pg_class'::regclass THEN p.refobjid END,
           CASE WHEN e.expression LIKE '%''%' THEN e.expression END,
           CASE WHEN p.refclassid = 'pg_class'::regclass THEN p.refobjid END,
           CASE WHEN a.attname = ANY (v.shows) THEN quote_ident(a.attname) ELSE (SELECT string_agg(quote_ident(n), ' ') FROM unnest(v.shows) n) END
      FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
     CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (expression)
      LEFT JOIN LATERAL (
        SELECT * FROM pg_depend p
         WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refobjid <> v.relation
           AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_class'::regclass) OFFSET 0) p ON true
     WHERE d.adrelid = v.relation AND (p.refobjid IS NOT NULL OR e.expression LIKE '%nextval(%')
    UNION
    SELECT format('trigger %I of %s', g.tgname, v.name), 'pg_proc'::regclass, g.tgfoid, {told}, NULL, NULL
      FROM pg_trigger g
     WHERE v.kind = 'v' AND g.tgrelid = v.relation AND NOT g.tgisinternal AND g.tgenabled <> 'D'
    UNION
    SELECT format('rule %I of %s', r.rulename, v.name), p.refclassid,
           CASE WHEN p.refclassid <> 'pg_class'::regclass THEN p.refobjid END, pg_get_ruledef(r.oid),
           CASE WHEN p.refclassid = 'pg_class'::regclass THEN p.refobjid END, NULL
      FROM pg_rewrite r
      LEFT JOIN LATERAL (
        SELECT * FROM pg_depend p
         WHERE p.classid = 'pg_rewrite'::regclass AND p.objid = r.oid AND p.refobjsubid = 0
           AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_class'::regclass) OFFSET 0) p ON true
     WHERE r.ev_class = v.relation AND r.rulename <> '_RETURN' AND r.ev_enabled <> 'D'
  ) f (what, class, function, text, sequence, fills)
  LEFT JOIN pg_operator o ON f.class = 'pg_operator'::regclass AND o.oid = f.function
 ORDER BY 1, 3, 4, 6
