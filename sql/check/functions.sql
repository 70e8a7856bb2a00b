-- Functions that the mover's sessions call and that find what they name by the caller's
-- search_path: bodies that are texts, without SET search_path. The target calls them for
-- each row that it takes, the source only where an index is planned with. $1: schemas,
-- $2: tables, $3: whether this is the target. Position of the table, what calls, the
-- function, the column of which it is the default, its number if its body is SQL and can be
-- tried, whether that shows that it works.
WITH RECURSIVE tree AS (
    SELECT w.ord - 1 AS position, l.oid
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     CROSS JOIN LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) m
      JOIN pg_class l ON l.oid = m.oid
), part (position, attname, oid) AS (
    SELECT t.position, a.attname, a.atttypid FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid
     WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT p.position, p.attname, child.oid
      FROM part p JOIN pg_type t ON t.oid = p.oid
     CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                   WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r
                   WHERE r.rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
     ) AS child (oid)
     WHERE child.oid >= 16384
), caller (position, what, classid, objid, column_name) AS (
    SELECT t.position, format('%s: constraint %I', t.oid::regclass, k.conname), 'pg_constraint'::regclass, k.oid, NULL
      FROM tree t JOIN pg_constraint k ON k.conrelid = t.oid
     WHERE $3::boolean AND k.contype IN ('c', 'x') AND k.coninhcount = 0
    UNION ALL
    SELECT p.position, format('column %I: constraint %I of domain %s', p.attname, k.conname, p.oid::regtype), 'pg_constraint'::regclass, k.oid, NULL
      FROM part p JOIN pg_constraint k ON k.contypid = p.oid WHERE $3::boolean
    UNION ALL
    SELECT t.position, format('%s: index %s', t.oid::regclass, i.indexrelid::regclass), 'pg_class'::regclass, i.indexrelid, NULL
      FROM tree t JOIN pg_index i ON i.indrelid = t.oid
     WHERE NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
    UNION ALL
    SELECT t.position, format('%s: column %I', t.oid::regclass, a.attname), 'pg_attrdef'::regclass, d.oid,
           CASE WHEN a.attgenerated = '' THEN a.attname END
      FROM tree t JOIN pg_attrdef d ON d.adrelid = t.oid
      JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
     -- What is generated is so in each partition; a default is that of the table named.
     WHERE $3::boolean AND NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhrelid = t.oid)
), called (position, what, column_name, oid) AS (
    SELECT c.position, c.what, c.column_name, coalesce(o.oprcode, d.refobjid::oid)
      FROM caller c JOIN pg_depend d ON d.classid = c.classid AND d.objid = c.objid
      LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
    UNION
    -- The server knows what is in bodies of standard SQL.
    SELECT c.position, c.what, c.column_name, coalesce(o.oprcode, d.refobjid::oid)
      FROM called c JOIN pg_proc p ON p.oid = c.oid
      JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = c.oid
      LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
       AND NOT coalesce(array_to_string(p.proconfig, ',') ~ '(^|,)search_path=', false)
)
SELECT DISTINCT c.position, c.what, p.oid::regprocedure::text, c.column_name,
       CASE WHEN l.lanname = 'sql' THEN p.oid END,
       -- A type of the server's own has its operators where every search_path finds them;
       -- of another, those of a type that it is cast to would be taken.
       NOT $3::boolean OR l.lanname = 'sql' AND p.prorettype < 16384
           AND NOT EXISTS (SELECT 1 FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) a WHERE a >= 16384)
  FROM called c JOIN pg_proc p ON p.oid = c.oid JOIN pg_language l ON l.oid = p.prolang
 WHERE l.lanname NOT IN ('internal', 'c') AND p.oid >= 16384 AND p.prosrc <> ''
   AND NOT coalesce(array_to_string(p.proconfig, ',') ~ '(^|,)search_path=', false)
 ORDER BY 1, 2, 3
