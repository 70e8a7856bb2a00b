-- What rows of tables are, and what else may happen to them: another text whenever somebody has changed it. {tables}: their
-- names, qualified and quoted.
WITH tree AS (
    SELECT w.oid FROM (SELECT to_regclass(n)::oid AS oid FROM unnest({tables}::text[]) AS n) AS w WHERE w.oid IS NOT NULL
    UNION
    SELECT p.relid FROM (SELECT to_regclass(n)::oid AS oid FROM unnest({tables}::text[]) AS n) AS w, pg_partition_tree(w.oid) AS p
)
SELECT md5(string_agg(f.fact, ',' ORDER BY f.fact COLLATE "C"))
  FROM tree
 CROSS JOIN LATERAL (
    SELECT concat_ws(' ', 'table', c.oid, c.relkind, c.relpersistence, c.relispartition, c.relrowsecurity, c.relhassubclass)
      FROM pg_class c WHERE c.oid = tree.oid
    UNION ALL
    SELECT concat_ws(' ', 'column', a.attrelid, a.attnum, a.xmin) FROM pg_attribute a WHERE a.attrelid = tree.oid AND a.attnum > 0
    UNION ALL
    SELECT concat_ws(' ', 'constraint', k.oid, k.xmin) FROM pg_constraint k WHERE k.conrelid = tree.oid
    UNION ALL
    -- Those of foreign keys to it are among them.
    SELECT concat_ws(' ', 'trigger', t.oid, t.xmin, t.tgenabled) FROM pg_trigger t WHERE t.tgrelid = tree.oid
    UNION ALL
    SELECT concat_ws(' ', 'rule', r.oid, r.xmin) FROM pg_rewrite r WHERE r.ev_class = tree.oid
 ) AS f (fact)
