-- Which tables, views, functions, types, text search configurations and collations of some schemas have one of some names. $1: schemas, $2: names. Kind, schema, name.
SELECT DISTINCT k.kind, n.nspname, k.name
  FROM pg_namespace n
 CROSS JOIN LATERAL (
    SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'table' END, c.relname
      FROM unnest($2::name[]) w (name) JOIN pg_class c ON c.relname = w.name AND c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL
    SELECT 'type', t.typname
      FROM unnest($2::name[]) w (name) JOIN pg_type t ON t.typname = w.name AND t.typnamespace = n.oid
     WHERE t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND t.typrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c')
    UNION ALL
    SELECT 'text search configuration', t.cfgname FROM unnest($2::name[]) w (name) JOIN pg_ts_config t ON t.cfgname = w.name AND t.cfgnamespace = n.oid
    UNION ALL
    SELECT 'collation', l.collname FROM unnest($2::name[]) w (name) JOIN pg_collation l ON l.collname = w.name AND l.collnamespace = n.oid
    UNION ALL
    SELECT 'function', p.proname
      FROM unnest($2::name[]) w (name) JOIN pg_proc p ON p.proname = w.name AND p.pronamespace = n.oid) AS k (kind, name)
 WHERE n.nspname = ANY ($1::name[]) AND n.nspname <> 'pg_catalog'
 ORDER BY 1, 2, 3
