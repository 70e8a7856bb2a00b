-- Tables and views beside some tables that texts name, or that views over the tables read, and what these views read. $1: schemas, $2:
-- tables, $3: names in the texts, $4: schemas of other shards. Schema, name, kind; of a view what it shows, as whom, and what writes to it
-- meet; whether a table has never had a row, or none since it was emptied; whether a text names it, or what reads it; whether a view over the
-- tables does. Those views themselves are looked at with the tables.
WITH RECURSIVE wanted AS (
    SELECT c.oid, c.relnamespace, c.relowner
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), reader (oid) AS (
    SELECT w.oid FROM wanted w
    UNION
    SELECT r.ev_class FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), named (oid, is_of_text) AS (
    SELECT c.oid, true
      FROM unnest($3::name[]) AS w (name) JOIN pg_class c ON c.relname = w.name AND c.oid >= 16384 JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE (n.oid IN (SELECT w.relnamespace FROM wanted w) OR n.nspname = ANY ($3::name[]) AND n.nspname <> ALL ($4::text[]))
       AND c.oid NOT IN (SELECT o.oid FROM reader o)
    UNION
    SELECT o.oid, false FROM reader o
    UNION
    SELECT d.refobjid, b.is_of_text FROM named b JOIN pg_rewrite r ON r.ev_class = b.oid
      JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
)
SELECT n.nspname, c.relname, c.relkind,
       CASE WHEN c.relkind IN ('v', 'm') THEN concat_ws(' ', pg_get_viewdef(c.oid), array_to_string(c.reloptions, ' '),
           -- With whose rights: of superusers, and of the tables' owners, it does not matter which.
           CASE WHEN NOT o.rolsuper AND c.relowner NOT IN (SELECT w.relowner FROM wanted w) THEN format('OWNER %I', o.rolname) END,
           CASE WHEN NOT c.relispopulated THEN 'WITH NO DATA' END,
           (SELECT string_agg(pg_get_triggerdef(t.oid), ' ' ORDER BY t.tgname) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')),
           (SELECT string_agg(pg_get_ruledef(r.oid), ' ' ORDER BY r.rulename) FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN' AND r.ev_enabled IN ('O', 'A')),
           (SELECT string_agg(format('%I DEFAULT %s', a.attname, pg_get_expr(e.adbin, e.adrelid)), ' ' ORDER BY a.attnum)
              FROM pg_attrdef e JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum WHERE e.adrelid = c.oid)) END,
       c.relkind = 'r' AND pg_relation_size(c.oid) = 0, bool_or(b.is_of_text), bool_or(NOT b.is_of_text)
  FROM named b
  JOIN pg_class c ON c.oid = b.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' AND c.oid >= 16384 AND NOT c.relispartition
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'shardmaster_agent')
  JOIN pg_roles o ON o.oid = c.relowner
 WHERE c.oid NOT IN (SELECT o.oid FROM reader o)
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
 GROUP BY n.nspname, c.oid, c.relname, c.relkind, c.reloptions, c.relowner, c.relispopulated, o.rolsuper, o.rolname
 ORDER BY 1, 2
