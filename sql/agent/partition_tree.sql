-- The partitions of a side's tables, each table before what is below it. $1: schemas, $2: tables.
-- Position of the table, partition, the table above it (of the table itself: none), schema, name,
-- bound, by what it is partitioned, by which columns alone if it is by columns alone, the owner if it is
-- somebody else.
SELECT w.ord - 1, p.relid::oid, CASE WHEN p.level > 0 THEN p.parentrelid::oid END, n.nspname, c.relname,
       pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid),
       CASE t.partstrat WHEN 'r' THEN 'RANGE' WHEN 'l' THEN 'LIST' WHEN 'h' THEN 'HASH' END,
       CASE WHEN NOT EXISTS (
                SELECT 1 FROM unnest(t.partattrs::int2[], t.partclass::oid[], t.partcollation::oid[]) AS k (attnum, class, collated)
                  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum <> 0
                  LEFT JOIN pg_opclass o ON o.oid = k.class
                 WHERE a.attnum IS NULL OR k.collated <> a.attcollation OR o.opcdefault IS NOT TRUE)
            THEN (SELECT json_agg(a.attname ORDER BY k.ord)
                    FROM unnest(t.partattrs::int2[]) WITH ORDINALITY AS k (attnum, ord)
                    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum)::text END,
       CASE WHEN c.relowner <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) THEN pg_get_userbyid(c.relowner) END
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace wn ON wn.nspname = w.nsp
  JOIN pg_class wc ON wc.relnamespace = wn.oid AND wc.relname = w.rel AND wc.relkind = 'p'
 CROSS JOIN pg_partition_tree(wc.oid) p
  JOIN pg_class c ON c.oid = p.relid AND c.relkind IN ('r', 'p')
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_partitioned_table t ON t.partrelid = c.oid
 ORDER BY w.ord, p.level, c.relname
