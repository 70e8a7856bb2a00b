-- Functions that fill columns of tables, or run when clients write to them: of defaults, of the defaults of domains, of
-- triggers, of constraints, of policies. With them goes the text that calls them, and tells them which sequence, perhaps: the default, or what a trigger's function is told. And
-- defaults that name a sequence by a text, of which there is no dependency: nextval('s'::text). $1: tables.
-- Position of the table, counted from 1, column of which it is the default, what calls it, the function's number, the text.
SELECT DISTINCT w.position, f.column_name, f.what, coalesce(o.oprcode::oid, f.function), f.expression
  FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
 CROSS JOIN LATERAL (SELECT w.relation UNION SELECT p.relid FROM pg_partition_tree(w.relation) p) m (relation)
 CROSS JOIN LATERAL (
    SELECT a.attname, format('the default of column %I', a.attname), p.refclassid, p.refobjid,
           CASE WHEN p.refobjid IS NOT NULL AND e.expression LIKE '%''%' OR e.expression ~ {by_text} THEN e.expression END
      FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
     CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (expression)
      LEFT JOIN LATERAL (
        SELECT * FROM pg_depend p WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
           AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) OFFSET 0) p ON true
     WHERE d.adrelid = m.relation
    UNION
    SELECT a.attname, format('the default of domain %s', p.domain::regtype), p.refclassid, p.refobjid,
           CASE WHEN p.refobjid IS NOT NULL AND p.typdefault LIKE '%''%' OR p.typdefault ~ {by_text} THEN p.typdefault END
      FROM pg_attribute a
     CROSS JOIN LATERAL (
        WITH RECURSIVE domain (oid) AS (
            SELECT a.atttypid
            UNION
            SELECT y.typbasetype FROM domain o JOIN pg_type y ON y.oid = o.oid WHERE y.typtype = 'd' AND y.typbasetype >= 16384
        )
        SELECT o.oid AS domain, y.typdefault, d.refclassid, d.refobjid FROM domain o
          JOIN pg_type y ON y.oid = o.oid
          LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = o.oid
                               AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) OFFSET 0) p
     WHERE m.relation = w.relation AND a.attrelid = w.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT NULL, format('trigger %I', g.tgname), 'pg_proc'::regclass, g.tgfoid, {told}
      FROM pg_trigger g
     WHERE g.tgrelid = m.relation AND NOT g.tgisinternal AND g.tgenabled <> 'D'
    UNION
    SELECT NULL, format('constraint %I', k.conname), p.refclassid, p.refobjid, NULL
      FROM pg_constraint k
      JOIN pg_depend p ON p.classid = 'pg_constraint'::regclass AND p.objid = k.oid AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
     WHERE k.conrelid = m.relation AND k.contype = 'c'
    UNION
    SELECT NULL, format('policy %I', y.polname), p.refclassid, p.refobjid, NULL
      FROM pg_policy y
      JOIN pg_depend p ON p.classid = 'pg_policy'::regclass AND p.objid = y.oid AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
     WHERE y.polrelid = m.relation
    UNION
    -- Other tables, which decide who sees what.
    SELECT NULL, format('policy %I', y.polname), NULL, NULL, concat_ws(' ', pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid))
      FROM pg_policy y WHERE y.polrelid = m.relation
  ) f (column_name, what, class, function, expression)
  LEFT JOIN pg_operator o ON f.class = 'pg_operator'::regclass AND o.oid = f.function
 WHERE coalesce(o.oprcode::oid, f.function) >= 16384 OR f.expression IS NOT NULL
 ORDER BY 1, 2, 3, 4, 5
