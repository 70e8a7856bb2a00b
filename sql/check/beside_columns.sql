-- What a side's tables have beside their columns. $1: schemas, $2: tables. Position of the table, kind, name, what it is, the columns
-- that it is of, of an index what it is made of, whether it holds for old rows too, and the table's schema. Of an index' parts those are
-- untried that are computed, or whose values may be too long for it.
WITH wanted AS (
    SELECT w.ord - 1 AS position, c.oid, c.relrowsecurity, c.relforcerowsecurity, quote_ident(w.nsp) AS schema
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), found AS (
    SELECT w.position, 'trigger' AS kind, t.tgname::text AS name, concat_ws(' ', t.tgtype, p.proname, encode(t.tgargs, 'hex')) AS says,
           NULL::smallint[] AS columns, NULL::json AS of_index, true AS is_held, w.oid, w.schema
      FROM wanted w JOIN pg_trigger t ON t.tgrelid = w.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
      JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE p.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
    UNION ALL
    SELECT w.position, 'setting', s.name, '', NULL, NULL, true, w.oid, w.schema
      FROM wanted w CROSS JOIN LATERAL (SELECT 'ROW LEVEL SECURITY' WHERE w.relrowsecurity
                                        UNION ALL SELECT 'FORCE ROW LEVEL SECURITY' WHERE w.relforcerowsecurity) AS s (name)
    UNION ALL
    -- Which roles: by their names, since numbers are a server's own.
    SELECT w.position, 'policy', p.polname, concat_ws(' ', p.polcmd, p.polpermissive,
               (SELECT string_agg(CASE r.oid WHEN 0 THEN 'PUBLIC' ELSE r.oid::regrole::text END, ',' ORDER BY r.oid::regrole::text) FROM unnest(p.polroles) r (oid)),
               'USING', pg_get_expr(p.polqual, p.polrelid), 'CHECK', pg_get_expr(p.polwithcheck, p.polrelid),
               -- What its functions say, without the schema's name.
               (SELECT string_agg(format('%s %s', f.proname, md5(replace(f.prosrc, w.schema || '.', ''))), ', ' ORDER BY f.proname, f.oid::regprocedure::text)
                  FROM pg_depend d JOIN pg_proc f ON f.oid = d.refobjid
                 WHERE d.classid = 'pg_policy'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_proc'::regclass AND f.oid >= 16384)),
           NULL, NULL, true, w.oid, w.schema
      FROM wanted w JOIN pg_policy p ON p.polrelid = w.oid
    UNION ALL
    SELECT w.position, CASE k.contype WHEN 'c' THEN 'check' WHEN 'x' THEN 'exclusion' ELSE 'foreign key' END, k.conname,
           -- Whether it is valid is said apart.
           CASE k.contype WHEN 'c' THEN pg_get_expr(k.conbin, k.conrelid) ELSE regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', '') END,
           k.conkey || ARRAY(SELECT v[1]::int2 FROM pg_index i, regexp_matches(concat(i.indexprs::text, i.indpred::text), ':varattno (\d+)', 'g') v
                              WHERE k.contype = 'x' AND i.indexrelid = k.conindid),
           NULL, k.convalidated, w.oid, w.schema
      FROM wanted w JOIN pg_constraint k ON k.conrelid = w.oid AND k.contype IN ('c', 'x', 'f') AND k.conparentid = 0
     WHERE coalesce(to_jsonb(k) ->> 'conenforced', 'true')::boolean
    UNION ALL
    SELECT w.position, CASE WHEN i.indisprimary THEN 'primary key' WHEN i.indisunique THEN 'unique key' ELSE 'index' END, x.relname,
           concat_ws(' ', m.amname, p.list, 'WHERE ' || pg_get_expr(i.indpred, i.indrelid, true), CASE WHEN p.nulls THEN 'NULLS NOT DISTINCT' END),
           i.indkey::int2[] || ARRAY(SELECT v[1]::int2 FROM regexp_matches(concat(i.indexprs::text, i.indpred::text), ':varattno (\d+)', 'g') v),
           json_build_object('method', m.amname, 'parts', p.list, 'untried', p.untried, 'is_of_some', i.indpred IS NOT NULL, 'are_nulls_equal', p.nulls),
           i.indisvalid, w.oid, w.schema
      FROM wanted w JOIN pg_index i ON i.indrelid = w.oid AND i.indislive AND NOT i.indisexclusion
      JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
     CROSS JOIN LATERAL (
        SELECT json_agg(e.text ORDER BY e.ord), coalesce(json_agg(e.text) FILTER (WHERE e.is_untried), '[]'),
               coalesce(to_jsonb(i) ->> 'indnullsnotdistinct' = 'true', false)
          FROM (SELECT k.ord, concat_ws(' ', pg_get_indexdef(i.indexrelid, k.ord::int, true), o.opcname,
                                        CASE WHEN NOT l.collisdeterministic THEN l.collname END) AS text,
                       a.attnum IS NULL
                       OR m.amname <> 'hash' AND a.attlen = -1
                          AND a.atttypid NOT IN ('numeric'::regtype, 'inet'::regtype, 'cidr'::regtype, 'bit'::regtype)
                          AND NOT (a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND a.atttypmod BETWEEN 0 AND 500) AS is_untried
                  FROM unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[]) WITH ORDINALITY AS k (attnum, class, coll, ord)
                  JOIN pg_opclass o ON o.oid = k.class LEFT JOIN pg_collation l ON l.oid = k.coll
                  LEFT JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum = k.attnum AND k.attnum > 0
                 WHERE k.ord <= i.indnkeyatts) AS e) AS p (list, untried, nulls)
    UNION ALL
    SELECT v.position, CASE v.relkind WHEN 'm' THEN 'materialized view' ELSE 'view' END, v.relname, '', NULL, NULL, true, v.oid, v.schema
      FROM (SELECT DISTINCT w.position, c.relkind, c.relname, w.oid, w.schema
              FROM wanted w
              JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = w.oid AND d.classid = 'pg_rewrite'::regclass
              JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class
             WHERE c.relkind IN ('v', 'm') AND c.relpersistence <> 't') AS v
)
SELECT f.position, f.kind, f.name, f.says,
       (SELECT json_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = f.oid AND a.attnum = ANY (f.columns) AND a.attnum > 0),
       f.of_index, f.is_held, f.schema
  FROM found f
 ORDER BY 1, 2, 3
