-- What a side's tables have beside their columns. $1: schemas, $2: tables. Position of the table, kind, name, what it is, the columns
-- that it is of, of an index what it is made of, whether it holds for old rows too, and the table's schema. Of an index' parts those are
-- untried that are computed, or whose values may be too long for it. What several tables have, a view or a cast, is of the first one.
WITH RECURSIVE wanted AS (
    SELECT w.ord - 1 AS position, c.oid, c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relowner, quote_ident(w.nsp) AS schema
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), reader (position, oid, is_guarded) AS (
    -- The tables, their partitions, views over them, and views over those.
    SELECT w.position, w.oid, w.relrowsecurity FROM wanted w
    UNION
    SELECT w.position, p.relid::oid, w.relrowsecurity FROM wanted w CROSS JOIN LATERAL pg_partition_tree(w.oid) p WHERE w.relkind = 'p'
    UNION
    SELECT o.position, r.ev_class, o.is_guarded
      FROM reader o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), view AS MATERIALIZED (
    SELECT v.position, v.is_guarded, c.oid, c.relkind, c.relname, c.relowner, c.reloptions, c.relispopulated
      FROM (SELECT min(o.position) AS position, o.oid, bool_or(o.is_guarded) AS is_guarded FROM reader o GROUP BY o.oid) v
      JOIN pg_class c ON c.oid = v.oid AND c.relkind IN ('v', 'm') AND c.relpersistence <> 't'
), shown AS (
    SELECT v.*, w.oid AS of_table, w.schema, o.rolsuper OR v.relowner IN (SELECT t.relowner FROM wanted t) AS has_rights
      FROM view v JOIN wanted w ON w.position = v.position JOIN pg_roles o ON o.oid = v.relowner
), part AS MATERIALIZED (
    SELECT w.position, w.oid AS of_table, w.schema, c.oid, c.relname, c.relrowsecurity, c.relforcerowsecurity
      FROM wanted w CROSS JOIN LATERAL pg_partition_tree(w.oid) p JOIN pg_class c ON c.oid = p.relid
     WHERE w.relkind = 'p' AND p.level > 0
), off (constraints) AS MATERIALIZED (
    -- Constraints that ALTER TABLE .. DISABLE TRIGGER ALL keeps nothing from, on either table or in a partition.
    SELECT array_agg(coalesce(nullif(k.conparentid, 0), k.oid)) FROM pg_trigger t JOIN pg_constraint k ON k.oid = t.tgconstraint
     WHERE t.tgisinternal AND t.tgenabled NOT IN ('O', 'A')
), found AS (
    -- One that fires in a replica's session alone, no client meets.
    SELECT w.position, CASE WHEN w.view IS NULL THEN 'trigger' ELSE 'view trigger' END AS kind, concat(w.view || '.', t.tgname) AS name,
           replace(pg_get_triggerdef(t.oid), format(' TRIGGER %I ', t.tgname), ' TRIGGER ') AS says,
           NULL::smallint[] AS columns, NULL::json AS of_index, true AS is_held, w.of_table AS oid, w.schema
      FROM (SELECT w.position, w.oid, w.oid AS of_table, w.schema, NULL AS view FROM wanted w
            UNION ALL SELECT v.position, v.oid, v.of_table, v.schema, v.relname FROM shown v) w
      JOIN pg_trigger t ON t.tgrelid = w.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
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
           concat(CASE k.contype WHEN 'c' THEN pg_get_expr(k.conbin, k.conrelid) ELSE regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', '') END,
                  CASE WHEN k.oid = ANY (o.constraints) THEN ' DISABLED' END),
           k.conkey || ARRAY(SELECT v[1]::int2 FROM pg_index i, regexp_matches(concat(i.indexprs::text, i.indpred::text), ':varattno (\d+)', 'g') v
                              WHERE k.contype = 'x' AND i.indexrelid = k.conindid),
           NULL, k.convalidated, w.oid, w.schema
      FROM wanted w JOIN pg_constraint k ON k.conrelid = w.oid AND k.contype IN ('c', 'x', 'f') AND k.conparentid = 0 CROSS JOIN off o
     WHERE coalesce(to_jsonb(k) ->> 'conenforced', 'true')::boolean
    UNION ALL
    SELECT w.position, CASE WHEN i.indisprimary THEN 'primary key' WHEN i.indisunique THEN 'unique key' ELSE 'index' END, x.relname,
           concat_ws(' ', m.amname, p.list, 'WHERE ' || pg_get_expr(i.indpred, i.indrelid, true), CASE WHEN p.nulls THEN 'NULLS NOT DISTINCT' END),
           i.indkey::int2[] || ARRAY(SELECT v[1]::int2 FROM regexp_matches(concat(i.indexprs::text, i.indpred::text), ':varattno (\d+)', 'g') v),
           json_build_object('method', m.amname, 'parts', p.list, 'untried', p.untried, 'is_of_some', i.indpred IS NOT NULL, 'are_nulls_equal', p.nulls,
                             'constraint', k.conname,
                             'checked', concat(CASE WHEN k.condeferrable THEN 'DEFERRABLE' END, CASE WHEN k.condeferred THEN ' INITIALLY DEFERRED' END,
                                               CASE WHEN k.oid = ANY (o.constraints) THEN ' DISABLED' END)),
           i.indisvalid, w.oid, w.schema
      FROM wanted w JOIN pg_index i ON i.indrelid = w.oid AND i.indislive AND NOT i.indisexclusion
      JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam CROSS JOIN off o
      LEFT JOIN pg_constraint k ON k.conrelid = w.oid AND k.conindid = i.indexrelid AND k.contype IN ('p', 'u')
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
    -- By its owner's rights, where not all see the same rows, or he has only some.
    SELECT v.position, CASE v.relkind WHEN 'm' THEN 'materialized view' ELSE 'view' END, v.relname,
           concat_ws(' ', pg_get_viewdef(v.oid), (SELECT string_agg(o.text, ' ' ORDER BY o.text COLLATE "C") FROM unnest(v.reloptions) o (text)),
                     CASE WHEN v.is_guarded OR NOT v.has_rights THEN format('OWNER %s', v.relowner::regrole) END, CASE WHEN NOT v.relispopulated THEN 'WITH NO DATA' END,
                     -- Those that REFRESH .. CONCURRENTLY needs.
                     (SELECT string_agg(regexp_replace(pg_get_indexdef(i.indexrelid), '^.*? USING ', 'UNIQUE '), ' ' ORDER BY i.indkey::text)
                        FROM pg_index i WHERE i.indrelid = v.oid AND v.relkind = 'm' AND i.indisunique AND i.indisvalid)),
           ARRAY(SELECT d.refobjsubid::int2 FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                  WHERE r.ev_class = v.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = v.of_table AND d.refobjsubid > 0),
           NULL, true, v.of_table, v.schema
      FROM shown v
    UNION ALL
    SELECT v.position, 'view rule', format('%s.%s', v.relname, r.rulename), replace(pg_get_ruledef(r.oid), format(' RULE %I ', r.rulename), ' RULE '),
           NULL, NULL, true, v.of_table, v.schema
      FROM shown v JOIN pg_rewrite r ON r.ev_class = v.oid AND r.rulename <> '_RETURN' AND r.ev_enabled IN ('O', 'A')
    UNION ALL
    SELECT v.position, 'view default', format('%s.%s', v.relname, a.attname), pg_get_expr(d.adbin, d.adrelid), NULL, NULL, true, v.of_table, v.schema
      FROM shown v JOIN pg_attrdef d ON d.adrelid = v.oid JOIN pg_attribute a ON a.attrelid = v.oid AND a.attnum = d.adnum
    UNION ALL
    -- Its own, or else its domain's. What a sequence is called is said elsewhere.
    SELECT e.position, 'default', e.attname, regexp_replace(e.says, 'nextval\([^()]*(\([^()]*\)[^()]*)?\)', 'nextval()', 'g'), ARRAY[e.attnum], NULL, true, e.oid, e.schema
      FROM (SELECT w.position, w.oid, w.schema, a.attname, a.attnum,
                   CASE a.attidentity WHEN 'a' THEN 'ALWAYS' WHEN 'd' THEN 'nextval()'
                        ELSE coalesce(pg_get_expr(e.adbin, e.adrelid), pg_get_expr(t.typdefaultbin, 0)) END AS says
              FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                                               AND (a.atthasdef OR a.attidentity <> '' OR a.atttypid >= 16384)
              JOIN pg_type t ON t.oid = a.atttypid
              LEFT JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum) AS e
     WHERE e.says !~ '^NULL(::|$)'
    UNION ALL
    SELECT w.position, 'partition key', '', pg_get_partkeydef(w.oid), NULL, NULL, true, w.oid, w.schema FROM wanted w WHERE w.relkind = 'p'
    UNION ALL
    SELECT w.position, 'partition', c.relname, pg_get_expr(c.relpartbound, c.oid), NULL, NULL, true, w.oid, w.schema
      FROM wanted w JOIN pg_inherits i ON i.inhparent = w.oid AND w.relkind = 'p' JOIN pg_class c ON c.oid = i.inhrelid
    UNION ALL
    -- What a partition has and its table has not.
    SELECT p.position, 'partition''s', format('%s: %s', p.relname, f.name), f.says, NULL, NULL, true, p.of_table, p.schema
      FROM part p
     CROSS JOIN LATERAL (
        SELECT 'trigger ' || t.tgname, replace(pg_get_triggerdef(t.oid), format(' TRIGGER %I ', t.tgname), ' TRIGGER ')
          FROM pg_trigger t LEFT JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_trigger'::regclass
          JOIN pg_proc f ON f.oid = t.tgfoid
         WHERE t.tgrelid = p.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND d.objid IS NULL
           AND f.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
        UNION ALL
        SELECT 'ROW LEVEL SECURITY', concat(p.relrowsecurity, p.relforcerowsecurity) WHERE p.relrowsecurity
        UNION ALL
        SELECT 'policy ' || y.polname, concat_ws(' ', y.polcmd, y.polpermissive, pg_get_expr(y.polqual, y.polrelid), 'CHECK', pg_get_expr(y.polwithcheck, y.polrelid))
          FROM pg_policy y WHERE y.polrelid = p.oid
        UNION ALL
        SELECT 'constraint ' || k.conname, pg_get_constraintdef(k.oid)
          FROM pg_constraint k WHERE k.conrelid = p.oid AND k.contype IN ('c', 'f', 'x') AND k.conislocal AND k.conparentid = 0 AND k.coninhcount = 0
        UNION ALL
        SELECT 'unique index ' || x.relname, regexp_replace(pg_get_indexdef(i.indexrelid), '^.*? USING ', '')
          FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = p.oid AND i.indisunique AND i.indisvalid AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
        UNION ALL
        SELECT 'default of ' || a.attname, pg_get_expr(e.adbin, e.adrelid)
          FROM pg_attrdef e JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated = ''
          LEFT JOIN pg_attribute b ON b.attrelid = p.of_table AND b.attname = a.attname
          LEFT JOIN pg_attrdef o ON o.adrelid = b.attrelid AND o.adnum = b.attnum
         WHERE e.adrelid = p.oid AND pg_get_expr(o.adbin, o.adrelid) IS DISTINCT FROM pg_get_expr(e.adbin, e.adrelid)) AS f (name, says)
    UNION ALL
    SELECT k.position, 'cast', format('%s AS %s', o.typname, t.typname),
           concat_ws(' ', k.castsource::regtype, k.casttarget::regtype, k.castcontext, k.castmethod, nullif(k.castfunc, 0)::regprocedure),
           NULL, NULL, true, w.oid, w.schema
      FROM (SELECT k.oid, k.castsource, k.casttarget, k.castcontext, k.castmethod, k.castfunc, min(w.position) AS position
              FROM pg_cast k JOIN wanted w ON k.oid >= 16384
              JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND a.atttypid IN (k.castsource, k.casttarget)
             WHERE NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = k.oid AND d.deptype = 'e')
             GROUP BY k.oid, k.castsource, k.casttarget, k.castcontext, k.castmethod, k.castfunc) k
      JOIN wanted w ON w.position = k.position JOIN pg_type o ON o.oid = k.castsource JOIN pg_type t ON t.oid = k.casttarget
)
SELECT f.position, f.kind, f.name, f.says,
       (SELECT json_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = f.oid AND a.attnum = ANY (f.columns) AND a.attnum > 0),
       f.of_index, f.is_held, f.schema
  FROM found f
 ORDER BY 1, 2, 3
