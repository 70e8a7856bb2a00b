-- Foreign keys from or to the tables of the keyspace that do not carry the shard-by column
-- on both ends: rows on both sides of a split may depend on each other by them. One JSON
-- list. $1: schemas, $2: tables, $3: shard-by columns, $4: those, too, that carry it.
WITH wanted AS (
    SELECT w.ord - 1 AS position, c.oid, w.shard_by
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (nsp, rel, shard_by, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), members AS (
    -- A key may be one partition's alone.
    SELECT w.position, w.shard_by, w.oid AS relid FROM wanted w
    UNION
    SELECT w.position, w.shard_by, p.relid FROM wanted w, pg_partition_tree(w.oid) p
)
SELECT coalesce(json_agg(json_build_object(
           'name', f.conname,
           'from', format('%I.%I', sn.nspname, sc.relname),
           'from_position', s.position,
           'to', format('%I.%I', tn.nspname, tc.relname),
           'to_position', t.position,
           'to_schema', tn.nspname,
           'to_name', tc.relname,
           'columns', k.columns,
           'is_period', coalesce(to_jsonb(f)->>'conperiod', 'false')::boolean,
           'is_validated', f.convalidated,
           'carries_key', k.carries IS TRUE,
           -- A change of the referenced row changes the referencing ones.
           'follows', concat_ws(' ', 'ON DELETE ' || (a.words ->> f.confdeltype::text), 'ON UPDATE ' || (a.words ->> f.confupdtype::text)),
           'match', f.confmatchtype::text,
           'can_read', has_table_privilege(sc.oid, 'SELECT') AND has_schema_privilege(sc.relnamespace, 'USAGE')
                   AND has_table_privilege(tc.oid, 'SELECT') AND has_schema_privilege(tc.relnamespace, 'USAGE'),
           'can_lock', has_any_column_privilege(tc.oid, 'UPDATE'))
           ORDER BY f.conrelid, f.conname), '[]')
  FROM pg_constraint f
  JOIN pg_class sc ON sc.oid = f.conrelid JOIN pg_namespace sn ON sn.oid = sc.relnamespace
  JOIN pg_class tc ON tc.oid = f.confrelid JOIN pg_namespace tn ON tn.oid = tc.relnamespace
  CROSS JOIN (SELECT '{"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}'::jsonb) a (words)
  LEFT JOIN members s ON s.relid = f.conrelid
  LEFT JOIN members t ON t.relid = f.confrelid
  CROSS JOIN LATERAL (
        SELECT json_agg(json_build_object(
                   'from', x.attname, 'to', y.attname,
                   -- referenced = referencing
                   'operator', format('OPERATOR(%I.%s)', opn.nspname, o.oprname),
                   -- What it compares: of the columns' own types there may be one of that name, too.
                   'operands', CASE WHEN opn.nspname <> 'pg_catalog' AND NOT 'p' IN (lt.typtype, rt.typtype)
                                    THEN json_build_array(format_type(lt.oid, NULL), format_type(rt.oid, NULL)) END) ORDER BY u.ord) AS columns,
               bool_or(x.attname = s.shard_by AND y.attname = t.shard_by) AS carries
          FROM unnest(f.conkey, f.confkey, f.conpfeqop) WITH ORDINALITY AS u (from_number, to_number, op, ord)
          JOIN pg_attribute x ON x.attrelid = f.conrelid AND x.attnum = u.from_number
          JOIN pg_attribute y ON y.attrelid = f.confrelid AND y.attnum = u.to_number
          JOIN pg_operator o ON o.oid = u.op JOIN pg_namespace opn ON opn.oid = o.oprnamespace
          JOIN pg_type lt ON lt.oid = o.oprleft JOIN pg_type rt ON rt.oid = o.oprright) k
 WHERE f.contype = 'f' AND f.conparentid = 0
   AND coalesce(to_jsonb(f)->>'conenforced', 'true')::boolean
   AND (s.position IS NOT NULL OR t.position IS NOT NULL)
   AND ($4::boolean OR k.carries IS NOT TRUE)
