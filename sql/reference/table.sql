-- Why rows are not copied from or to tables, and which of their columns are not changed in place: those by which rows
-- exclude each other, and those that the server alone fills. $1: schemas, $2: names, $3: whether rows are copied to them.
SELECT coalesce(json_agg(json_build_object(
    'refused', (
        SELECT min(p.text) FROM (
            SELECT 'is not an ordinary, logged table' WHERE c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relispartition
            UNION ALL
            SELECT 'has tables that inherit from it, or inherits itself' FROM pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid)
            UNION ALL
            SELECT format('has rule %I', r.rulename) FROM pg_rewrite r WHERE r.ev_class = c.oid
            UNION ALL
            SELECT format('has trigger %I, enabled ALWAYS or REPLICA', t.tgname) FROM pg_trigger t
             WHERE $3::boolean AND t.tgrelid = c.oid AND t.tgenabled IN ('A', 'R')
               AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
            UNION ALL
            SELECT format('has constraint %I, which is deferrable', k.conname) FROM pg_constraint k
             WHERE $3::boolean AND k.conrelid = c.oid AND k.contype IN ('p', 'u', 'x') AND k.condeferrable
            UNION ALL
            SELECT 'has a subscription that writes to it' FROM pg_subscription_rel s WHERE $3::boolean AND s.srrelid = c.oid) p (text)),
    'fixed', (
        SELECT coalesce(json_agg(a.attname ORDER BY a.attnum), '[]') FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND (a.attidentity = 'a'
                OR EXISTS (SELECT 1 FROM pg_index i
                            WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion)
                              AND (a.attnum = ANY (i.indkey::int2[])
                                   OR EXISTS (SELECT 1 FROM pg_depend d
                                               WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                                                 AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
                                                 AND d.refobjsubid = a.attnum)))))) ORDER BY w.ord), '[]')
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
