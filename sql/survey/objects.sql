-- What belongs to the tables $1 and is in the way of a split, or has to be on each shard: the table, a word for what it
-- is, its name, and a detail. Partitions count for their table. $2: the tables that nobody holds locked. To read a
-- partition's bounds, the server locks it.
WITH RECURSIVE part (root, oid) AS (
    SELECT t.oid, t.oid FROM unnest($1::oid[]) t (oid)
    UNION ALL
    SELECT p.root, i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
), member AS MATERIALIZED (
    SELECT p.root, c.oid, c.relname, c.relkind, c.relispartition FROM part p JOIN pg_class c ON c.oid = p.oid
), author AS MATERIALIZED (
    -- Functions that are neither the server's nor an extension's, nor of a role that the mover is at least equal to.
    SELECT f.oid, f.oid::regprocedure::text AS name, f.proowner,
           -- A body that is a text finds its names by the search_path of its caller; one in SQL may have none to find.
           f.prosrc <> '' AND NOT coalesce(array_to_string(f.proconfig, ',') ~ '(^|,)search_path=', false)
               AND f.prolang NOT IN (SELECT l.oid FROM pg_language l WHERE l.lanname IN ('internal', 'c', 'sql')) AS is_loose
      FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
     WHERE f.oid >= 16384 AND n.nspname <> 'shardmaster_agent'
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = f.oid AND d.deptype = 'e')
), caller (root, what, classid, objid) AS (
    SELECT m.root, format('constraint %I', k.conname), 'pg_constraint'::regclass::oid, k.oid
      FROM member m JOIN pg_constraint k ON k.conrelid = m.oid WHERE k.contype = 'c' AND k.coninhcount = 0
    UNION ALL
    SELECT m.root, format('index %s', x.indexrelid::regclass), 'pg_class'::regclass, x.indexrelid
      FROM member m JOIN pg_index x ON x.indrelid = m.oid WHERE (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL) AND NOT m.relispartition
    UNION ALL
    SELECT m.root, format('column %I', a.attname), 'pg_attrdef'::regclass, d.oid
      FROM member m JOIN pg_attribute a ON a.attrelid = m.oid AND a.attgenerated <> '' AND NOT m.relispartition
      JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION ALL
    SELECT m.root, format('trigger %I', t.tgname), 'pg_trigger'::regclass, t.oid
      FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid
     WHERE NOT t.tgisinternal AND t.tgenabled IN ('A', 'R') AND NOT m.relispartition
), runs AS MATERIALIZED (
    SELECT DISTINCT c.root, c.what, a.name, a.proowner, a.is_loose AND c.what NOT LIKE 'trigger %' AS is_loose
      FROM caller c JOIN pg_depend d ON d.classid = c.classid AND d.objid = c.objid AND d.refclassid = 'pg_proc'::regclass
      JOIN author a ON a.oid = d.refobjid
), typed AS MATERIALIZED (
    -- The element of an array, and what a domain is over, where that is no domain again.
    SELECT m.root, a.attname, b.oid AS base
      FROM member m JOIN pg_attribute a ON a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_type y ON y.oid = a.atttypid
      JOIN pg_type e ON e.oid = CASE WHEN y.typcategory = 'A' AND y.typelem <> 0 THEN y.typelem ELSE y.oid END
      JOIN pg_type b ON b.oid = CASE WHEN e.typtype = 'd' THEN e.typbasetype ELSE e.oid END
     WHERE m.oid = m.root AND b.typtype = 'b'
       -- Those that are in every database, and travel, are not worth a row.
       AND b.oid NOT IN ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype, 'float4'::regtype,
                         'float8'::regtype, 'text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'uuid'::regtype, 'bytea'::regtype,
                         'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'json'::regtype, 'jsonb'::regtype)
)
SELECT t.root, 'type', string_agg(quote_ident(t.attname), ', ' ORDER BY t.attname),
       CASE WHEN x.extname IS NULL THEN format_type(t.base, NULL) ELSE y.typname END, x.extname
  FROM typed t JOIN pg_type y ON y.oid = t.base
  LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.base AND d.deptype = 'e'
  LEFT JOIN pg_extension x ON x.oid = d.refobjid
 GROUP BY t.root, t.base, y.typname, x.extname
UNION ALL
SELECT m.root, 'not valid', k.conname, m.oid::regclass::text, NULL
  FROM member m JOIN pg_constraint k ON k.conrelid = m.oid WHERE NOT k.convalidated AND k.conparentid = 0 AND k.coninhcount = 0
UNION ALL
SELECT m.root, 'invalid index', x.indexrelid::regclass::text, NULL, NULL
  FROM member m JOIN pg_index x ON x.indrelid = m.oid JOIN pg_class c ON c.oid = x.indexrelid
 WHERE NOT x.indisvalid AND c.relkind = 'i'
UNION ALL
SELECT m.root, 'trigger', t.tgname, t.tgfoid::regproc::text, t.tgenabled::text
  FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid
 WHERE NOT t.tgisinternal AND NOT m.relispartition AND t.tgenabled <> 'D'
   AND NOT EXISTS (SELECT FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace WHERE f.oid = t.tgfoid AND n.nspname = 'shardmaster_agent')
UNION ALL
SELECT m.root, 'policy', p.polname, NULL, NULL FROM member m JOIN pg_policy p ON p.polrelid = m.oid WHERE NOT m.relispartition
UNION ALL
SELECT r.root, 'code', string_agg(DISTINCT r.what || ' (' || r.name || ')', ', '), o.rolname, NULL
  FROM runs r JOIN pg_roles o ON o.oid = r.proowner WHERE NOT o.rolsuper AND o.rolname <> current_user
 GROUP BY r.root, o.rolname
UNION ALL
SELECT r.root, 'search path', r.what, r.name, NULL FROM runs r WHERE r.is_loose
UNION ALL
SELECT m.root, 'rule', r.rulename, NULL, NULL FROM member m JOIN pg_rewrite r ON r.ev_class = m.oid
UNION ALL
-- Columns alone that have the name of a kind and of a number of what they refer to.
SELECT m.root, 'pair', k.attname, i.attname, NULL
  FROM member m
  JOIN pg_attribute k ON k.attrelid = m.oid AND k.attname LIKE '%\_type' AND k.attnum > 0 AND NOT k.attisdropped
  JOIN pg_type y ON y.oid = k.atttypid AND (y.typcategory = 'S' OR y.typtype = 'e')
  JOIN pg_attribute i ON i.attrelid = m.oid AND i.attname = left(k.attname, -4) || 'id' AND i.attnum > 0 AND NOT i.attisdropped
 WHERE m.oid = m.root
   AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.conrelid = m.oid AND f.contype = 'f' AND i.attnum = ANY (f.conkey))
UNION ALL
SELECT m.root, 'months', format('%s to %s', min(b.low), max(b.high)),
       count(*)::text, round(sum(CASE WHEN c.relpages > 0 THEN c.reltuples::numeric ELSE 0 END))::text
  FROM member m JOIN pg_inherits i ON i.inhrelid = m.oid AND i.inhparent = m.root
  JOIN pg_partitioned_table p ON p.partrelid = m.root AND p.partstrat = 'r' AND m.root = ANY ($2::oid[])
  JOIN pg_attribute a ON a.attrelid = m.root AND a.attnum = p.partattrs[0]
   AND a.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
  JOIN pg_class c ON c.oid = m.oid
 CROSS JOIN LATERAL (SELECT CASE WHEN m.root = ANY ($2::oid[]) THEN pg_get_expr(c.relpartbound, c.oid) END) e (bound)
 CROSS JOIN LATERAL (SELECT left(substring(e.bound FROM 'FROM \(''([^'']+)'''), 10), left(substring(e.bound FROM 'TO \(''([^'']+)'''), 10)) b (low, high)
 GROUP BY m.root
UNION ALL
SELECT v.root, 'view', v.name, v.relkind::text, NULL
  FROM (SELECT DISTINCT m.root, r.ev_class::regclass::text AS name, c.relkind
          FROM member m JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.oid AND d.classid = 'pg_rewrite'::regclass
          JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class AND c.relkind IN ('v', 'm')) v
 ORDER BY 1, 2, 3, 4
