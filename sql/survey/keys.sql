-- The foreign keys of the tables $1, each with its columns as JSON: what they refer to, and whether they may be NULL.
-- Keys of partitions are those of their table.
SELECT k.oid, k.conname, k.conrelid, k.confrelid, k.confrelid::regclass::text,
       (SELECT json_agg(json_build_object('from', f.attname, 'to', t.attname, 'nullable', NOT f.attnotnull,
                                          'plain', o.oprnamespace = 'pg_catalog'::regnamespace
                                              AND y.typtype IN ('b', 'e') AND z.typtype IN ('b', 'e'))
                        ORDER BY u.at)
          FROM unnest(k.conkey, k.confkey, k.conpfeqop) WITH ORDINALITY u (from_at, to_at, op, at)
          JOIN pg_attribute f ON f.attrelid = k.conrelid AND f.attnum = u.from_at
          JOIN pg_attribute t ON t.attrelid = k.confrelid AND t.attnum = u.to_at
          JOIN pg_operator o ON o.oid = u.op JOIN pg_type y ON y.oid = f.atttypid JOIN pg_type z ON z.oid = t.atttypid)
  FROM pg_constraint k
 WHERE k.contype = 'f' AND k.conrelid = ANY ($1::oid[]) AND k.conparentid = 0
 ORDER BY k.conrelid, k.conname
