-- Constraints, indexes, statistics, what a replica is told.
-- What a partition has because its table has it is made before it is attached, which takes it as it is: with a name and options
-- of its own. It is called by that of the table.
SELECT CASE WHEN p.is_part THEN 6 WHEN k.contype = 'f' THEN 12 ELSE 9 END,
       CASE WHEN k.contype = 'f' THEN 'foreign key'
            WHEN k.contype = 'c' THEN 'check' || CASE WHEN p.is_part THEN ' of partition' ELSE '' END
            WHEN p.is_part THEN 'index of partition'
            ELSE CASE k.contype WHEN 'p' THEN 'primary key' WHEN 'u' THEN 'unique' WHEN 'x' THEN 'exclusion' END END,
       format('%s: %I', k.conrelid::regclass, coalesce((SELECT o.conname FROM pg_constraint o WHERE o.oid = k.conparentid), k.conname)),
       k.conrelid::regclass::text, d.definition,
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', k.conrelid::regclass, k.conname, d.definition), k.oid::bigint
  FROM member m JOIN pg_constraint k ON k.conrelid = m.oid
  LEFT JOIN pg_class x ON x.oid = k.conindid AND k.contype IN ('p', 'u')
 CROSS JOIN LATERAL (SELECT m.relispartition AND (k.contype IN ('p', 'u', 'x') AND k.conparentid <> 0 OR k.contype = 'c' AND k.coninhcount > 0 AND k.convalidated)) AS p (is_part)
 CROSS JOIN LATERAL (
    SELECT pg_get_constraintdef(k.oid), CASE WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END || CASE WHEN k.condeferred THEN ' INITIALLY DEFERRED' ELSE '' END) AS s (text, checked)
 CROSS JOIN LATERAL (
    -- Before PostgreSQL has the words for when it is checked, those for an index come first.
    SELECT CASE WHEN x.reloptions IS NULL THEN s.text
                ELSE format('%s WITH (%s)%s', left(s.text, length(s.text) - length(s.checked)), array_to_string(x.reloptions, ', '), s.checked) END) AS d (definition)
 WHERE p.is_part OR k.contype IN ('c', 'p', 'u', 'x', 'f') AND k.conparentid = 0 AND k.conislocal AND k.coninhcount = 0
UNION ALL
SELECT CASE WHEN q.relname IS NULL THEN 10 ELSE 6 END,
       CASE WHEN q.relname IS NULL THEN 'index' ELSE 'index of partition' END,
       CASE WHEN q.relname IS NULL THEN i.indexrelid::regclass::text ELSE format('%s: %I', m.oid::regclass, q.relname) END, m.oid::regclass::text,
       CASE WHEN q.relname IS NULL THEN d.head ELSE u.word END || d.tail || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END,
       'CREATE ' || d.head || d.tail, i.indexrelid::bigint
  FROM member m JOIN pg_index i ON i.indrelid = m.oid JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = m.relnamespace
  LEFT JOIN pg_inherits h ON h.inhrelid = i.indexrelid
  LEFT JOIN pg_class q ON q.oid = h.inhparent
 CROSS JOIN LATERAL (SELECT CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END) AS u (word)
 CROSS JOIN LATERAL (
    SELECT pg_get_indexdef(i.indexrelid),
           format('CREATE %sINDEX %I ON ONLY %I.%I ', u.word, c.relname, n.nspname, m.relname),
           format('CREATE %sINDEX %I ON %I.%I ', u.word, c.relname, n.nspname, m.relname)) AS f (text, of_only, head)
 CROSS JOIN LATERAL (
    SELECT format('%sINDEX %I ON %s ', u.word, c.relname, m.oid::regclass),
           CASE WHEN starts_with(f.text, f.of_only) THEN substr(f.text, length(f.of_only) + 1)
                WHEN starts_with(f.text, f.head) THEN substr(f.text, length(f.head) + 1) END) AS d (head, tail)
 WHERE NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x') AND k.conrelid = m.oid)
UNION ALL
SELECT 11, 'index statistics', i.indexrelid::regclass::text, m.oid::regclass::text, d.definition,
       format('ALTER INDEX %s %s', i.indexrelid::regclass, d.definition), i.indexrelid::bigint
  FROM member m JOIN pg_index i ON i.indrelid = m.oid
 CROSS JOIN LATERAL (
    SELECT string_agg(format('ALTER COLUMN %s SET STATISTICS %s', a.attnum, a.attstattarget), ', ' ORDER BY a.attnum)
      FROM pg_attribute a WHERE a.attrelid = i.indexrelid AND coalesce(a.attstattarget, -1) >= 0) AS d (definition)
 WHERE d.definition IS NOT NULL
UNION ALL
SELECT 11, 'statistics', format('%s: %I', m.oid::regclass, s.stxname), m.oid::regclass::text, d.definition || coalesce('; ' || e.target, ''),
       format('CREATE STATISTICS %s%s', e.name, d.definition) || coalesce('; ALTER STATISTICS ' || e.name || ' ' || e.target, ''), s.oid::bigint
  FROM member m JOIN pg_statistic_ext s ON s.stxrelid = m.oid JOIN pg_namespace n ON n.oid = s.stxnamespace
 CROSS JOIN LATERAL (SELECT pg_get_statisticsobjdef(s.oid), format('CREATE STATISTICS %I.%I', n.nspname, s.stxname)) AS f (text, head)
 CROSS JOIN LATERAL (SELECT CASE WHEN starts_with(f.text, f.head) THEN substr(f.text, length(f.head) + 1) END) AS d (definition)
 CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_statistics_obj_is_visible(s.oid) THEN quote_ident(s.stxname) ELSE format('%I.%I', n.nspname, s.stxname) END,
           CASE WHEN s.stxstattarget >= 0 THEN 'SET STATISTICS ' || s.stxstattarget END) AS e (name, target)
UNION ALL
SELECT 11, 'cluster', m.oid::regclass::text, m.oid::regclass::text, format('ON %I', c.relname),
       format('ALTER TABLE %s CLUSTER ON %I', m.oid::regclass, c.relname), m.oid::bigint
  FROM member m JOIN pg_index i ON i.indrelid = m.oid AND i.indisclustered JOIN pg_class c ON c.oid = i.indexrelid
UNION ALL
SELECT 11, 'replica identity', m.oid::regclass::text, m.oid::regclass::text, d.definition,
       format('ALTER TABLE %s REPLICA IDENTITY %s', m.oid::regclass, d.definition), m.oid::bigint
  FROM member m
 CROSS JOIN LATERAL (
    SELECT CASE m.relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING'
                               WHEN 'i' THEN (SELECT format('USING INDEX %I', c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                                               WHERE i.indrelid = m.oid AND i.indisreplident) END) AS d (definition)
 WHERE m.relreplident <> 'd'
