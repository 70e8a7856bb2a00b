-- Keys of one side's tables that hold over all rows: unique indexes and exclusion constraints without the shard-by column.
-- $1: schemas, $2: tables, $3: shard-by columns. Position of the table, its name or that of a partition that has the index
-- alone, the index, its predicate, what its parts are, as JSON; whether these are constants; whether it is of a partition
-- alone; whether it takes NULLs for equal.
WITH wanted AS (
    SELECT w.ord - 1 AS position, c.oid, w.shard_by
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (nsp, rel, shard_by, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), tree AS (
    SELECT w.position, w.oid AS root, w.shard_by, l.oid
      FROM wanted w CROSS JOIN LATERAL (SELECT w.oid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) l (oid)
)
SELECT t.position, format('%I.%I', n.nspname, l.relname), quote_ident(x.relname), pg_get_expr(i.indpred, i.indrelid, true),
       (SELECT json_agg(json_build_object(
                   'text', pg_get_indexdef(i.indexrelid, e.ord::int, true),
                   'column', a.attname,
                   'type', format_type(coalesce(a.atttypid, y.atttypid), -1),
                   'operator', format('OPERATOR(%I.%s)', s.nspname, o.oprname),
                   'collation', CASE WHEN e.coll <> 0 THEN format('%I.%I', m.nspname, k.collname) END,
                   'is_boolean', coalesce(a.atttypid, y.atttypid) = 'bool'::regtype,
                   'is_uuid', coalesce(a.atttypid, y.atttypid) = 'uuid'::regtype,
                   'default', pg_get_expr(d.adbin, d.adrelid),
                   'refers', (
                       WITH RECURSIVE above (relation, attnum) AS (
                           SELECT f.confrelid, f.confkey[array_position(f.conkey, e.attnum)]
                             FROM pg_constraint f WHERE f.conrelid = i.indrelid AND f.contype = 'f' AND e.attnum = ANY (f.conkey)
                           UNION
                           SELECT f.confrelid, f.confkey[array_position(f.conkey, u.attnum)]
                             FROM above u JOIN pg_constraint f ON f.conrelid = u.relation AND f.contype = 'f' AND u.attnum = ANY (f.conkey)
                       )
                       SELECT json_agg(json_build_object('table', format('%I.%I', ns.nspname, r.relname), 'column', b.attname) ORDER BY r.relname, b.attname)
                         FROM above u JOIN pg_attribute b ON b.attrelid = u.relation AND b.attnum = u.attnum
                         JOIN pg_class r ON r.oid = u.relation JOIN pg_namespace ns ON ns.oid = r.relnamespace),
                   'bases', CASE WHEN e.attnum = 0 OR a.attgenerated <> '' THEN (
                       -- What it is computed from, and what that is generated from.
                       WITH first (attnum) AS (
                           SELECT b.attnum FROM pg_attribute b
                            WHERE e.attnum = 0 AND b.attrelid = i.indrelid AND b.attnum > 0 AND NOT b.attisdropped
                              AND i.indexprs::text ~ (':varattno ' || b.attnum || ' ')
                              AND pg_get_indexdef(i.indexrelid, e.ord::int, true) ~ ('(^|[^[:alnum:]_"])' || regexp_replace(quote_ident(b.attname), '([^[:alnum:]_"])', '\\\1', 'g') || '($|[^[:alnum:]_"])')
                       )
                       SELECT json_agg(b.attname ORDER BY b.attname) FROM pg_attribute b
                        WHERE b.attrelid = i.indrelid AND b.attnum > 0 AND NOT b.attisdropped
                          AND (b.attnum IN (SELECT attnum FROM first)
                               OR EXISTS (SELECT 1 FROM pg_attribute v JOIN pg_attrdef g ON g.adrelid = v.attrelid AND g.adnum = v.attnum
                                           WHERE v.attrelid = i.indrelid AND v.attgenerated <> '' AND (v.attnum = e.attnum OR v.attnum IN (SELECT attnum FROM first))
                                             AND g.adbin::text ~ (':varattno ' || b.attnum || ' ')))) END) ORDER BY e.ord)
          FROM unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[], c.conexclop) WITH ORDINALITY AS e (attnum, opclass, coll, operator, ord)
          JOIN pg_attribute y ON y.attrelid = i.indexrelid AND y.attnum = e.ord
          JOIN pg_opclass oc ON oc.oid = e.opclass
          LEFT JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
                              AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
          JOIN pg_operator o ON o.oid = coalesce(e.operator, ao.amopopr) JOIN pg_namespace s ON s.oid = o.oprnamespace
          LEFT JOIN pg_collation k ON k.oid = e.coll LEFT JOIN pg_namespace m ON m.oid = k.collnamespace
          LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = e.attnum AND e.attnum > 0
          LEFT JOIN pg_attrdef d ON d.adrelid = i.indrelid AND d.adnum = a.attnum AND a.attgenerated = ''
         WHERE e.ord <= i.indnkeyatts),
       i.indexprs IS NOT NULL AND NOT EXISTS (SELECT 1 FROM unnest(i.indkey::int2[]) c (attnum) WHERE c.attnum > 0) AND i.indexprs::text !~ '\{VAR ',
       t.oid <> t.root, coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false')::boolean
  FROM tree t
  JOIN pg_index i ON i.indrelid = t.oid AND (i.indisunique OR i.indisexclusion) AND i.indislive
  JOIN pg_class x ON x.oid = i.indexrelid AND NOT x.relispartition
  JOIN pg_class l ON l.oid = t.oid JOIN pg_namespace n ON n.oid = l.relnamespace
  LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype = 'x' AND c.conrelid = i.indrelid
 WHERE NOT EXISTS (
        -- Of a collation that takes different keys for the same one, it keeps these apart.
        SELECT 1 FROM unnest(i.indkey::int2[], i.indcollation::oid[], c.conexclop) WITH ORDINALITY AS e (attnum, coll, operator, ord)
          JOIN pg_attribute b ON b.attrelid = t.oid AND b.attnum = e.attnum AND b.attname = t.shard_by
          LEFT JOIN pg_operator o ON o.oid = e.operator LEFT JOIN pg_collation k ON k.oid = e.coll
         WHERE e.ord <= i.indnkeyatts AND coalesce(o.oprname, '=') = '=' AND coalesce(k.collisdeterministic, true))
 ORDER BY 1, 2, 3
