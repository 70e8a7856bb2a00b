-- Tables that a split leaves behind without a word: in no keyspace, and with a column named like the shard-by column, or with
-- foreign keys that lead to a table of the keyspace. $1: schemas, $2: tables of the keyspace, $3: their shard-by columns,
-- $4: schemas, $5: tables that are registered otherwise, $6: schemas that are not the shard's. Qualified name, schema, name, such a
-- column, a table that it references on the way, whether that one is of the keyspace.
WITH RECURSIVE sharded AS MATERIALIZED (
    SELECT c.oid, w.shard_by, a.atttypid AS type
      FROM unnest($1::text[], $2::text[], $3::text[]) AS w (nsp, rel, shard_by)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
      LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.shard_by AND a.attnum > 0
), members AS MATERIALIZED (
    SELECT s.oid FROM sharded s
    UNION
    SELECT p.relid::oid FROM sharded s CROSS JOIN LATERAL pg_partition_tree(s.oid) p
), others AS MATERIALIZED (
    SELECT c.oid
      FROM unnest($4::text[], $5::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), known AS MATERIALIZED (
    SELECT m.oid FROM members m
    UNION SELECT o.oid FROM others o
    UNION SELECT p.relid::oid FROM others o CROSS JOIN LATERAL pg_partition_tree(o.oid) p
), names AS MATERIALIZED (
    -- However it is written; with "id" behind it or without, where it has the same type. A column "id" that alone is its table's
    -- key names what every table has.
    SELECT DISTINCT regexp_replace(lower(s.shard_by), '[^[:alnum:]]', '', 'g') AS name, s.type
      FROM sharded s
     WHERE lower(s.shard_by) <> 'id'
        OR NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                        WHERE i.indrelid = s.oid AND i.indisunique AND i.indnkeyatts = 1 AND a.attname = s.shard_by)
), named AS (
    SELECT c.oid, a.attname
      FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_attribute a ON a.attrelid = c.oid
     CROSS JOIN LATERAL (SELECT regexp_replace(lower(a.attname), '[^[:alnum:]]', '', 'g')) w (name)
     WHERE n.nspname <> ALL ($6::text[]) AND n.nspname NOT LIKE 'pg\_%' AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
       AND a.attnum > 0 AND NOT a.attisdropped
       AND EXISTS (SELECT FROM names s WHERE w.name = s.name OR a.atttypid = s.type AND (w.name = s.name || 'id' OR w.name || 'id' = s.name))
       -- An application may be an extension. Ours has tables of its own.
       AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'shardmaster'
                        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
), keys AS MATERIALIZED (
    -- A key may be one partition's alone: of what it is a part is what rows come by.
    SELECT DISTINCT f.conrelid AS oid, coalesce(pg_partition_root(f.conrelid)::oid, f.conrelid) AS root,
           f.confrelid AS referenced, coalesce(pg_partition_root(f.confrelid)::oid, f.confrelid) AS referenced_root
      FROM pg_constraint f
     WHERE f.contype = 'f' AND f.conparentid = 0 AND f.conrelid <> f.confrelid
), chain (oid, root, referenced, is_direct) AS (
    SELECT k.oid, k.root, k.referenced, true FROM keys k
     WHERE k.referenced_root IN (SELECT coalesce(pg_partition_root(m.oid)::oid, m.oid) FROM members m)
       AND k.oid NOT IN (SELECT oid FROM known)
    UNION
    SELECT k.oid, k.root, k.referenced, false FROM chain l JOIN keys k ON k.referenced_root = l.root
     WHERE k.oid NOT IN (SELECT oid FROM known)
), found AS (
    SELECT oid, attname, NULL::oid AS referenced, false AS is_direct FROM named WHERE oid NOT IN (SELECT oid FROM known)
    UNION ALL
    SELECT oid, NULL, referenced, is_direct FROM chain
), whole AS (
    -- Partitions stand for the table that they are of, unless some of them are registered by themselves.
    SELECT CASE WHEN NOT p.has_known THEN r.root WHEN c.relkind = 'r' THEN f.oid END AS oid, f.attname, f.referenced, f.is_direct
      FROM found f JOIN pg_class c ON c.oid = f.oid
     CROSS JOIN LATERAL (SELECT coalesce(pg_partition_root(f.oid)::oid, f.oid)) r (root)
     CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_partition_tree(r.root) t WHERE t.relid IN (SELECT oid FROM known))) p (has_known)
)
SELECT format('%I.%I', n.nspname, c.relname), n.nspname, c.relname, min(w.attname::text COLLATE "C"),
       min(quote_ident(rn.nspname) || '.' || quote_ident(r.relname) COLLATE "C"), bool_or(w.is_direct)
  FROM whole w JOIN pg_class c ON c.oid = w.oid JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN (pg_class r JOIN pg_namespace rn ON rn.oid = r.relnamespace) ON r.oid = w.referenced
 GROUP BY n.nspname, c.relname ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
