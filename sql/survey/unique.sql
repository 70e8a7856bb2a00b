-- The primary keys and unique indexes of the tables $1, with their columns as JSON: where values of each come from. $2: the
-- tables that nobody holds locked. To read an expression, the server locks its table.
-- A column of texts without a default is of random identifiers, if all values in the statistics have one length and
-- consist of letters and digits.
WITH entry AS MATERIALIZED (
    SELECT x.indrelid, x.indexrelid, x.indisprimary, x.indpred IS NOT NULL AS is_partial, u.attnum, u.at
      FROM pg_index x CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY u (attnum, at)
     WHERE x.indrelid = ANY ($1::oid[]) AND x.indisunique AND u.at <= x.indnkeyatts
), part AS MATERIALIZED (
    SELECT DISTINCT e.indrelid, e.attnum, a.attname, a.attidentity <> '' AS has_identity, a.attgenerated <> '' AS is_generated,
           y.typname, format_type(y.oid, NULL) AS type_name, y.typnamespace = 'pg_catalog'::regnamespace OR y.typtype = 'e' AS is_plain, y.typcategory = 'S' AND y.typtype = 'b' AND d.oid IS NULL AS is_text, d.oid AS default_oid,
           CASE WHEN d.adrelid = ANY ($2::oid[]) THEN pg_get_expr(d.adbin, d.adrelid) END AS expression,
           EXISTS (SELECT FROM pg_depend g JOIN pg_class q ON q.oid = g.refobjid AND q.relkind = 'S'
                    WHERE g.classid = 'pg_attrdef'::regclass AND g.objid = d.oid AND g.refclassid = 'pg_class'::regclass) AS draws
      FROM entry e JOIN pg_attribute a ON a.attrelid = e.indrelid AND a.attnum = e.attnum
      JOIN pg_type y ON y.oid = a.atttypid
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
), shaped AS MATERIALIZED (
    SELECT p.indrelid, p.attnum, v.low = v.high AND v.low >= 16 AND v.is_plain AND v.number >= 10 AS is_random
      FROM part p JOIN pg_class c ON c.oid = p.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     -- OFFSET 0: the statistics are found by their indexes, and not joined as a whole.
     CROSS JOIN LATERAL (
        SELECT s.histogram_bounds FROM pg_stats s
         WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = p.attname AND s.inherited = (c.relkind = 'p') OFFSET 0) s
     CROSS JOIN LATERAL (
        SELECT min(length(w.value)) AS low, max(length(w.value)) AS high, bool_and(w.value ~ '^[0-9A-Za-z_-]+$') AS is_plain, count(*) AS number
          FROM unnest(s.histogram_bounds::text::text[]) w (value)) v
     WHERE p.is_text
)
SELECT e.indrelid, e.indexrelid::regclass::text, c.relname, e.indisprimary, e.is_partial,
       json_agg(json_build_object(
           'name', p.attname, 'plain', p.is_plain, 'type', p.type_name,
           'source', CASE WHEN p.attnum IS NULL THEN 'expression'
                          WHEN p.has_identity OR p.draws THEN 'sequence'
                          WHEN p.typname = 'uuid' THEN 'random'
                          WHEN p.expression ~ '(gen_random|uuid|nanoid|ulid|cuid)' THEN 'random'
                          WHEN p.is_generated THEN 'expression'
                          WHEN s.is_random THEN 'random'
                          WHEN p.default_oid IS NOT NULL THEN 'default'
                          ELSE 'client' END) ORDER BY e.at)
  FROM entry e JOIN pg_class c ON c.oid = e.indexrelid
  LEFT JOIN part p ON p.indrelid = e.indrelid AND p.attnum = e.attnum
  LEFT JOIN shaped s ON s.indrelid = e.indrelid AND s.attnum = e.attnum
 GROUP BY e.indrelid, e.indexrelid, c.relname, e.indisprimary, e.is_partial
 ORDER BY e.indrelid, NOT e.indisprimary, c.relname
