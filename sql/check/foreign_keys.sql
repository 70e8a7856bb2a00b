-- Foreign keys between tables of the keyspace that do not carry the shard-by column
-- on both ends, each with the query that finds a row that crosses the scope.
-- $1: schemas, $2: tables, $3: shard-by columns.
WITH wanted AS (
    SELECT c.oid, w.shard_by,
           (SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = w.shard_by) AS by_number
      FROM unnest($1::text[], $2::text[], $3::text[]) AS w (nsp, rel, shard_by)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
)
SELECT format('%s references %s', f.conrelid::regclass, f.confrelid::regclass),
       format('SELECT 1 FROM %s a JOIN %s b ON %s WHERE a.%I::text IS DISTINCT FROM b.%I::text LIMIT 1',
              f.conrelid::regclass, f.confrelid::regclass,
              (SELECT string_agg(format('a.%I = b.%I', x.attname, y.attname), ' AND ')
                 FROM unnest(f.conkey, f.confkey) AS k (from_number, to_number)
                 JOIN pg_attribute x ON x.attrelid = f.conrelid AND x.attnum = k.from_number
                 JOIN pg_attribute y ON y.attrelid = f.confrelid AND y.attnum = k.to_number),
              s.shard_by, t.shard_by)
  FROM pg_constraint f JOIN wanted s ON s.oid = f.conrelid JOIN wanted t ON t.oid = f.confrelid
 WHERE f.contype = 'f' AND f.conparentid = 0
   AND NOT EXISTS (SELECT 1 FROM unnest(f.conkey, f.confkey) AS k (from_number, to_number)
                    WHERE k.from_number = s.by_number AND k.to_number = t.by_number)
