-- Which tables, views, functions, types, text search configurations and collations of some schemas have one of some names; and tables that such
-- views show. $1: schemas, $2: names. Kind, schema, name, the view, what a type and the like are made of.
SELECT DISTINCT k.kind, n.nspname, k.name, NULL::name, k.made_of
  FROM pg_namespace n
 CROSS JOIN LATERAL (
    SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'table' END, c.relname, NULL::text
      FROM unnest($2::name[]) w (name) JOIN pg_class c ON c.relname = w.name AND c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL
    SELECT 'type', t.typname,
           concat_ws(' ', t.typtype, (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid),
                     CASE WHEN t.typtype = 'd' THEN concat_ws(' ', format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault) END,
                     (SELECT string_agg(pg_get_constraintdef(k.oid), ' ' ORDER BY k.conname) FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'),
                     (SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
                        FROM pg_attribute a WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
                     (SELECT format_type(r.rngsubtype, NULL) FROM pg_range r WHERE r.rngtypid = t.oid))
      FROM unnest($2::name[]) w (name) JOIN pg_type t ON t.typname = w.name AND t.typnamespace = n.oid
     WHERE t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND t.typrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c')
    UNION ALL
    SELECT 'text search configuration', t.cfgname,
           (SELECT string_agg(format('%s %s', m.maptokentype, d.dictname), ', ' ORDER BY m.maptokentype, m.mapseqno)
              FROM pg_ts_config_map m JOIN pg_ts_dict d ON d.oid = m.mapdict WHERE m.mapcfg = t.oid)
      FROM unnest($2::name[]) w (name) JOIN pg_ts_config t ON t.cfgname = w.name AND t.cfgnamespace = n.oid
    UNION ALL
    SELECT 'collation', l.collname,
           concat_ws(' ', l.collprovider, l.collisdeterministic, coalesce(j ->> 'colliculocale', j ->> 'colllocale', l.collcollate::text), CASE l.collprovider WHEN 'c' THEN l.collctype END,
                     j ->> 'collicurules')
      FROM unnest($2::name[]) w (name) JOIN pg_collation l ON l.collname = w.name AND l.collnamespace = n.oid CROSS JOIN LATERAL to_jsonb(l) AS j
    UNION ALL
    SELECT 'function', p.proname, NULL
      FROM unnest($2::name[]) w (name) JOIN pg_proc p ON p.proname = w.name AND p.pronamespace = n.oid) AS k (kind, name, made_of)
 WHERE n.nspname = ANY ($1::name[]) AND n.nspname <> 'pg_catalog'
UNION
SELECT 'table', n.nspname, c.relname, b.name, NULL
  FROM (
    WITH RECURSIVE below (name, oid) AS (
        SELECT v.relname, v.oid FROM unnest($2::name[]) w (name) JOIN pg_class v ON v.relname = w.name AND v.relkind IN ('v', 'm') AND v.oid >= 16384
          JOIN pg_namespace n ON n.oid = v.relnamespace AND n.nspname = ANY ($1::name[])
        UNION
        SELECT b.name, d.refobjid FROM below b JOIN pg_rewrite r ON r.ev_class = b.oid
          JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
          JOIN pg_class c ON c.oid = d.refobjid AND c.relkind IN ('r', 'p', 'v', 'm') AND c.oid >= 16384)
    SELECT name, oid FROM below) b (name, oid)
  JOIN pg_class c ON c.oid = b.oid AND c.relkind IN ('r', 'p') JOIN pg_namespace n ON n.oid = c.relnamespace
 ORDER BY 1, 2, 3, 4
