-- Tables and views beside some tables that texts name. $1: schemas, $2: tables, $3: names in the texts, $4: schemas of other shards. Schema,
-- name, of a view what it shows and its options, and whether a table has never had a row, or none since it was emptied. Views over the tables themselves are looked at with these.
WITH RECURSIVE wanted AS (
    SELECT c.oid, c.relnamespace
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), reader (oid) AS (
    SELECT w.oid FROM wanted w
    UNION
    SELECT r.ev_class FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
)
SELECT n.nspname, c.relname, CASE WHEN c.relkind IN ('v', 'm') THEN concat_ws(' ', pg_get_viewdef(c.oid), array_to_string(c.reloptions, ' ')) END,
       c.relkind = 'r' AND pg_relation_size(c.oid) = 0
  FROM unnest($3::name[]) AS w (name)
  JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('r', 'p', 'v', 'm') AND c.relpersistence <> 't' AND c.oid >= 16384 AND NOT c.relispartition
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'shardmaster_agent')
 WHERE (n.oid IN (SELECT w.relnamespace FROM wanted w) OR n.nspname = ANY ($3::name[]) AND n.nspname <> ALL ($4::text[]))
   AND c.oid NOT IN (SELECT o.oid FROM reader o)
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
 ORDER BY 1, 2
