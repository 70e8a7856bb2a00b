-- What a table of a lookup index is: $1 its schema, $2 its name, $3 the column of the keys, $4 that of the owners, $5 how the
-- names of its triggers begin, up to the letter. No row: there is no such table. What is in the last column changes whenever
-- rows may have come or gone without a trigger of ours: by TRUNCATE or a rewrite (files), with partitions, or where triggers
-- were off for a while (their rows in the catalog).
WITH wanted AS (
    SELECT c.oid, c.relkind, c.relpersistence
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relname = $2
), tree AS (
    SELECT w.oid FROM wanted w WHERE w.relkind <> 'p'
    UNION ALL
    SELECT p.relid FROM wanted w, pg_partition_tree(w.oid) p WHERE w.relkind = 'p'
), col AS (
    SELECT x.name, a.attnum, b.typname, b.oid AS type, b.typtype, b.typnamespace, a.attgenerated, a.attcollation
      FROM wanted w
     CROSS JOIN (VALUES ($3), ($4)) AS x (name)
      LEFT JOIN pg_attribute a ON a.attrelid = w.oid AND a.attname = x.name AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN
            (WITH RECURSIVE base (oid) AS (SELECT t.oid UNION ALL SELECT d.typbasetype FROM base s JOIN pg_type d ON d.oid = s.oid AND d.typtype = 'd')
             SELECT s.oid FROM base s JOIN pg_type y ON y.oid = s.oid AND y.typtype <> 'd') ELSE t.oid END
), trigger AS (
    -- A condition names columns by their numbers: one whose column was replaced by another one of its name looks at the old
    -- one. What a partition has been given by its parent's depends on nothing of its own.
    SELECT t.tgrelid, t.tgname, t.oid, t.xmin, t.tgenabled,
           t.tgrelid <> (SELECT w.oid FROM wanted w)
           OR NOT EXISTS (SELECT FROM col c WHERE c.attnum IS NOT NULL
                             AND NOT EXISTS (SELECT FROM pg_depend d
                                              WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                                                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid
                                                AND d.refobjsubid = c.attnum)) AS is_of_columns
      FROM tree r JOIN pg_trigger t ON t.tgrelid = r.oid
     WHERE t.tgname IN ($5 || 'i', $5 || 'u', $5 || 'd')
       AND EXISTS (SELECT FROM pg_proc f WHERE f.oid = t.tgfoid AND f.proname = 'lookup'
                                           AND f.pronamespace = to_regnamespace('shardmaster_agent'))
)
SELECT (SELECT min(p.text) FROM (
            SELECT format('it is a %s, not a table', CASE w.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'relation of kind ' || w.relkind::text END) FROM wanted w WHERE w.relkind NOT IN ('r', 'p')
            UNION ALL SELECT format('%s is not a logged table of this server', l.oid::regclass) FROM tree r JOIN pg_class l ON l.oid = r.oid
                       WHERE l.relkind NOT IN ('r', 'p') OR l.relpersistence <> 'p'
            UNION ALL SELECT format('%s inherits from it', i.inhrelid::regclass) FROM wanted w JOIN pg_inherits i ON i.inhparent = w.oid WHERE w.relkind = 'r'
            UNION ALL SELECT format('it has no column "%s"', c.name) FROM col c WHERE c.attnum IS NULL
            UNION ALL SELECT format('column "%s" is of type %s, which no lookup index supports', c.name, format_type(c.type, NULL)) FROM col c
                       WHERE c.attnum IS NOT NULL AND (c.typnamespace <> 'pg_catalog'::regnamespace
                             OR c.typname NOT IN ('int2', 'int4', 'int8', 'numeric', 'text', 'varchar', 'bpchar', 'uuid'))
            UNION ALL SELECT format('column "%s" is computed when it is read', c.name) FROM col c WHERE c.attgenerated = 'v'
            UNION ALL SELECT format('the collation of column "%s" treats different texts as equal', c.name) FROM col c
                        JOIN pg_collation l ON l.oid = c.attcollation WHERE to_jsonb(l) ->> 'collisdeterministic' = 'false') AS p (text)),
       (SELECT 'pg_catalog.' || c.typname::text FROM col c WHERE c.name = $3 LIMIT 1),
       (SELECT 'pg_catalog.' || c.typname::text FROM col c WHERE c.name = $4 LIMIT 1),
       (SELECT count(*) FROM trigger t WHERE t.tgenabled = 'A' AND t.is_of_columns) = 3 * (SELECT count(*) FROM tree),
       md5(concat_ws(';',
           (SELECT string_agg(concat_ws(' ', r.oid, pg_relation_filenode(r.oid)), ',' ORDER BY r.oid) FROM tree r),
           (SELECT string_agg(concat_ws(' ', c.attnum, c.type), ',' ORDER BY c.name) FROM col c),
           (SELECT string_agg(concat_ws(' ', t.tgrelid, t.tgname, t.oid, t.xmin, t.tgenabled), ',' ORDER BY t.tgrelid, t.tgname) FROM trigger t)))
  FROM wanted
