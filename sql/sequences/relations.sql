-- Tables and views that texts name: what runs where they are written to or read. $1: schemas, $2: names, $3: tables that are looked at
-- by themselves. Of each what runs where it is written to ("table") and where it is read ("view"), with its number; what it is, its name;
-- what its triggers are told, or the text of a view that draws by a text; functions; sequences that views draw from.
WITH RECURSIVE named AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relkind FROM unnest($2::name[]) w (name)
      JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('r', 'p', 'v') AND c.oid >= 16384
      JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = ANY ($1::name[]) AND n.nspname <> 'shardmaster_agent'
     WHERE c.oid <> ALL (array_remove($3::oid[], NULL))
), below (first, oid) AS (
    -- What views show is read or written through them.
    SELECT n.oid, n.oid FROM named n
    UNION
    SELECT b.first, d.refobjid FROM below b
      JOIN pg_rewrite r ON r.ev_class = b.oid
      JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
      JOIN pg_class c ON c.oid = d.refobjid AND c.relkind IN ('r', 'p', 'v') AND c.oid >= 16384
     WHERE c.oid <> ALL (array_remove($3::oid[], NULL))
), needs (first, is_written, class, oid, text) AS (
    SELECT b.first, true, 'pg_proc'::regclass::oid, g.tgfoid, {told} FROM below b JOIN pg_trigger g ON g.tgrelid = b.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
    UNION ALL
    SELECT b.first, false, d.refclassid, d.refobjid, NULL FROM below b JOIN pg_rewrite r ON r.ev_class = b.oid
      JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refobjid >= 16384
                      AND (d.refclassid = 'pg_proc'::regclass
                           OR d.refclassid = 'pg_class'::regclass AND d.refobjid IN (SELECT s.oid FROM pg_class s WHERE s.relkind = 'S'))
    UNION ALL
    SELECT b.first, true, d.refclassid, d.refobjid, NULL FROM below b JOIN pg_attrdef e ON e.adrelid = b.oid
      JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_proc'::regclass AND d.refobjid >= 16384
    UNION ALL
    SELECT b.first, false, NULL, NULL, v.text FROM below b JOIN pg_class c ON c.oid = b.oid AND c.relkind = 'v'
     CROSS JOIN LATERAL (SELECT pg_get_viewdef(b.oid)) v (text) WHERE v.text ~ {by_text}
)
SELECT concat(w.kind, n.oid), CASE WHEN NOT s.is_written THEN concat(w.kind, n.oid::regclass) ELSE '' END, n.relname,
       string_agg(s.text, ' '), array_agg(DISTINCT s.oid::text) FILTER (WHERE s.class = 'pg_proc'::regclass),
       array_agg(DISTINCT s.oid::text) FILTER (WHERE s.class = 'pg_class'::regclass)
  FROM named n JOIN needs s ON s.first = n.oid CROSS JOIN LATERAL (SELECT CASE WHEN s.is_written THEN 'table ' ELSE 'view ' END) w (kind)
 GROUP BY n.oid, n.relname, s.is_written, w.kind
 ORDER BY 1
