-- Tables, their columns and partitions, what their sequences belong to.
SELECT 5, 'table', m.oid::regclass::text, m.oid::regclass::text, d.definition,
       CASE WHEN d.is_known THEN
       format('CREATE %sTABLE %s (%s)%s%s%s', CASE m.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, m.oid::regclass,
              (SELECT string_agg(format('%I %s', a.attname, x.definition), ', ' ORDER BY a.attnum)
                 FROM pg_attribute a CROSS JOIN LATERAL (SELECT definition FROM column_of c WHERE c.attrelid = a.attrelid AND c.attnum = a.attnum) x
                WHERE a.attrelid = m.oid),
              d.partitioned, d.method, d.options)
       || d.security || d.storage END,
       m.oid::bigint
  FROM member m
 CROSS JOIN LATERAL (
    SELECT coalesce(' PARTITION BY ' || pg_get_partkeydef(m.oid), ''),
           coalesce((SELECT format(' USING %I', a.amname) FROM pg_am a WHERE a.oid = m.relam AND a.amname <> 'heap'), ''),
           coalesce(' WITH (' || (SELECT string_agg(format('%s = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY o)
                                    FROM unnest(m.reloptions || (SELECT array_agg('toast.' || x) FROM pg_class toast, unnest(toast.reloptions) AS x
                                                                     WHERE toast.oid = m.reltoastrelid)) AS o) || ')', ''),
           CASE WHEN m.relrowsecurity THEN format('; ALTER TABLE %s ENABLE ROW LEVEL SECURITY', m.oid::regclass) ELSE '' END
           || CASE WHEN m.relforcerowsecurity THEN format('; ALTER TABLE %s FORCE ROW LEVEL SECURITY', m.oid::regclass) ELSE '' END,
           coalesce((SELECT string_agg(format('; ALTER TABLE %s ALTER %I %s', m.oid::regclass, a.attname, s.setting), '' ORDER BY a.attnum, s.setting)
                       FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                      CROSS JOIN LATERAL (
                          SELECT 'SET STORAGE ' || (CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
                           WHERE a.attstorage <> t.typstorage
                          UNION ALL
                          SELECT 'SET COMPRESSION ' || (CASE to_jsonb(a) ->> 'attcompression' WHEN 'l' THEN 'lz4' ELSE 'pglz' END)
                           WHERE coalesce(to_jsonb(a) ->> 'attcompression', '') <> ''
                          UNION ALL
                          SELECT 'SET STATISTICS ' || a.attstattarget WHERE coalesce(a.attstattarget, -1) >= 0
                          UNION ALL
                          SELECT 'SET (' || string_agg(o, ', ' ORDER BY o) || ')' FROM unnest(a.attoptions) AS o
                           WHERE split_part(o, '=', 1) IN ('n_distinct', 'n_distinct_inherited') HAVING count(*) > 0
                      ) AS s (setting)
                      WHERE a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped), '')
 ) AS e (partitioned, method, options, security, storage)
 CROSS JOIN LATERAL (
    SELECT trim(BOTH '; ' FROM CASE m.relpersistence WHEN 'u' THEN 'UNLOGGED' ELSE '' END
                || e.partitioned || e.method || e.options || e.security || e.storage
                -- What no split takes, and what is not made: it stands here to differ from what is.
                || CASE WHEN m.reloftype <> 0 THEN format('; OF %s', format_type(m.reloftype, NULL)) ELSE '' END
                || CASE m.relkind WHEN 'f' THEN '; FOREIGN' ELSE '' END
                || CASE WHEN m.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = m.oid) THEN '; INHERITED' ELSE '' END
                || CASE WHEN NOT m.relispartition AND EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = m.oid) THEN '; INHERITS' ELSE '' END
                || coalesce((SELECT string_agg(format('; RULE %I', r.rulename), '' ORDER BY r.rulename) FROM pg_rewrite r WHERE r.ev_class = m.oid), '')),
           m.reloftype = 0 AND m.relkind <> 'f' AND (m.relispartition OR NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = m.oid))
           AND NOT (m.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = m.oid))
           AND NOT EXISTS (SELECT 1 FROM pg_rewrite r WHERE r.ev_class = m.oid),
           e.partitioned, e.method, e.options, e.security, e.storage
 ) AS d (definition, is_known, partitioned, method, options, security, storage)
UNION ALL
SELECT 5, 'column', format('%s.%I', m.oid::regclass, c.attname), m.oid::regclass::text, c.definition, NULL::text, m.oid::bigint
  FROM member m JOIN column_of c ON c.attrelid = m.oid
UNION ALL
-- Whoever names no columns notices.
SELECT 5, 'column order', m.oid::regclass::text, m.oid::regclass::text, string_agg(quote_ident(c.attname), ', ' ORDER BY c.attnum), NULL, m.oid::bigint
  FROM member m JOIN column_of c ON c.attrelid = m.oid WHERE NOT m.relispartition GROUP BY m.oid
UNION ALL
SELECT 7, 'partition', m.oid::regclass::text, m.oid::regclass::text, d.definition,
       format('ALTER TABLE %s ATTACH PARTITION %s %s', i.inhparent::regclass, m.oid::regclass, pg_get_expr(m.relpartbound, m.oid)), m.oid::bigint
  FROM member m JOIN pg_inherits i ON i.inhrelid = m.oid
 CROSS JOIN LATERAL (SELECT format('of %s %s', i.inhparent::regclass, pg_get_expr(m.relpartbound, m.oid))) AS d (definition)
 WHERE m.relispartition
UNION ALL
SELECT 8, 'owned sequence', s.oid::regclass::text, s.owner_table::regclass::text, d.definition,
       format('ALTER SEQUENCE %s OWNED BY %s', s.oid::regclass, d.definition), s.oid::bigint
  FROM made_sequence s JOIN pg_attribute a ON a.attrelid = s.owner_table AND a.attnum = s.owner_column
 CROSS JOIN LATERAL (SELECT format('%s.%I', s.owner_table::regclass, a.attname)) AS d (definition)
 WHERE s.owned = 'a' AND s.owner_table IN (SELECT oid FROM member)
