-- Constraints, indexes, statistics, what a replica is told.
SELECT CASE k.contype WHEN 'f' THEN 12 ELSE 9 END,
       CASE k.contype WHEN 'f' THEN 'foreign key' WHEN 'c' THEN 'check' WHEN 'p' THEN 'primary key' WHEN 'u' THEN 'unique' WHEN 'x' THEN 'exclusion' END,
       format('%s: %I', k.conrelid::regclass, k.conname), k.conrelid::regclass::text, d.definition,
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', k.conrelid::regclass, k.conname, d.definition), k.oid::bigint
  FROM member m JOIN pg_constraint k ON k.conrelid = m.oid
  LEFT JOIN pg_class x ON x.oid = k.conindid AND k.contype IN ('p', 'u', 'x')
 CROSS JOIN LATERAL (SELECT pg_get_constraintdef(k.oid)) AS s (text)
 CROSS JOIN LATERAL (
    -- Before PostgreSQL has the words for it, those for an index come first.
    SELECT CASE WHEN x.reloptions IS NULL THEN s.text
                ELSE regexp_replace(s.text, '(?= DEFERRABLE|$)', ' WITH (' || array_to_string(x.reloptions, ', ') || ')') END) AS d (definition)
 WHERE k.contype IN ('c', 'p', 'u', 'x', 'f') AND k.conparentid = 0 AND k.conislocal AND k.coninhcount = 0
UNION ALL
SELECT 10, 'index', i.indexrelid::regclass::text, m.oid::regclass::text,
       d.definition || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END, 'CREATE ' || d.definition, i.indexrelid::bigint
  FROM member m JOIN pg_index i ON i.indrelid = m.oid JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = m.relnamespace
 CROSS JOIN LATERAL (SELECT CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END) AS u (word)
 CROSS JOIN LATERAL (
    SELECT pg_get_indexdef(i.indexrelid),
           format('CREATE %sINDEX %I ON ONLY %I.%I ', u.word, c.relname, n.nspname, m.relname),
           format('CREATE %sINDEX %I ON %I.%I ', u.word, c.relname, n.nspname, m.relname)) AS f (text, of_only, head)
 CROSS JOIN LATERAL (
    SELECT format('%sINDEX %I ON %s ', u.word, c.relname, m.oid::regclass)
           || CASE WHEN starts_with(f.text, f.of_only) THEN substr(f.text, length(f.of_only) + 1)
                   WHEN starts_with(f.text, f.head) THEN substr(f.text, length(f.head) + 1) END) AS d (definition)
 WHERE NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x') AND k.conrelid = m.oid)
   AND NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
UNION ALL
SELECT 11, 'statistics', format('%s: %I', m.oid::regclass, s.stxname), m.oid::regclass::text, d.definition,
       format('CREATE STATISTICS %s%s', CASE WHEN pg_statistics_obj_is_visible(s.oid) THEN quote_ident(s.stxname) ELSE format('%I.%I', n.nspname, s.stxname) END, d.definition),
       s.oid::bigint
  FROM member m JOIN pg_statistic_ext s ON s.stxrelid = m.oid JOIN pg_namespace n ON n.oid = s.stxnamespace
 CROSS JOIN LATERAL (SELECT pg_get_statisticsobjdef(s.oid), format('CREATE STATISTICS %I.%I', n.nspname, s.stxname)) AS f (text, head)
 CROSS JOIN LATERAL (SELECT CASE WHEN starts_with(f.text, f.head) THEN substr(f.text, length(f.head) + 1) END) AS d (definition)
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
