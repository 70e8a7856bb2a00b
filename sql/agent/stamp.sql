-- Whether anything may be another than it was in all that a look at tables was read from, as one
-- number: which version each row of the catalogs has. The lists, relations and others, are what that
-- look came to: what they lead to is kept in these very rows, and what could lead elsewhere by being
-- new is in here by what it would name. A row that is new or written again has a version that none had.
--
-- Of all that users have made of operator classes and casts each one counts: few have any, and there
-- is no index by what they are of.
(SELECT md5(ROW(
    (SELECT string_agg(c.xmin::text, ',' ORDER BY c.oid) FROM pg_class c WHERE c.oid = ANY ({relations})),
    (SELECT string_agg(a.xmin::text, ',' ORDER BY a.attrelid, a.attnum) FROM pg_attribute a
      WHERE a.attrelid = ANY ({relations}) AND a.attnum > 0),
    (SELECT string_agg(i.xmin::text, ',' ORDER BY i.indexrelid) FROM pg_index i WHERE i.indrelid = ANY ({relations})),
    (SELECT string_agg(k.xmin::text, ',' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = ANY ({relations})),
    (SELECT string_agg(d.xmin::text, ',' ORDER BY d.oid) FROM pg_attrdef d WHERE d.adrelid = ANY ({relations})),
    -- Those of other splits are none of this one's. The schema's row is written again whenever one begins.
    (SELECT to_regnamespace('shardmaster_agent')::oid),
    (SELECT string_agg(concat_ws(' ', t.xmin, f.xmin, f.pronamespace), ',' ORDER BY t.oid) FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
      WHERE t.tgrelid = ANY ({relations})
        AND (starts_with(t.tgname, {prefix}) OR f.pronamespace IS DISTINCT FROM (SELECT to_regnamespace('shardmaster_agent')::oid))),
    (SELECT string_agg(r.xmin::text, ',' ORDER BY r.oid) FROM pg_rewrite r WHERE r.ev_class = ANY ({relations})),
    (SELECT string_agg(s.xmin::text, ',' ORDER BY s.oid) FROM pg_statistic_ext s WHERE s.stxrelid = ANY ({relations})),
    (SELECT string_agg(i.xmin::text, ',' ORDER BY i.inhrelid, i.inhparent) FROM pg_inherits i
      WHERE i.inhparent = ANY ({relations})),
    (SELECT string_agg(i.xmin::text, ',' ORDER BY i.inhrelid, i.inhparent) FROM pg_inherits i
      WHERE i.inhrelid = ANY ({relations})),
    (SELECT string_agg(s.xmin::text, ',' ORDER BY s.srrelid, s.srsubid) FROM pg_subscription_rel s
      WHERE s.srrelid = ANY ({relations})),
    (SELECT string_agg(t.xmin::text, ',' ORDER BY t.oid) FROM pg_type t WHERE t.oid = ANY ({types})),
    (SELECT string_agg(k.xmin::text, ',' ORDER BY k.oid) FROM pg_constraint k WHERE k.contypid = ANY ({types})),
    (SELECT string_agg(e.xmin::text, ',' ORDER BY e.oid) FROM pg_enum e WHERE e.enumtypid = ANY ({types})),
    (SELECT string_agg(r.xmin::text, ',' ORDER BY r.rngtypid) FROM pg_range r WHERE r.rngtypid = ANY ({types})),
    (SELECT string_agg(d.xmin::text, ',' ORDER BY d.objid, d.refobjid) FROM pg_depend d
      WHERE d.classid = 'pg_type'::regclass AND d.objid = ANY ({types}) AND d.deptype = 'e'),
    (SELECT string_agg(p.xmin::text, ',' ORDER BY p.oid) FROM pg_proc p WHERE p.oid = ANY ({functions})),
    (SELECT string_agg(o.xmin::text, ',' ORDER BY o.oid) FROM pg_operator o WHERE o.oid = ANY ({operators})),
    (SELECT string_agg(o.xmin::text, ',' ORDER BY o.oid) FROM pg_opclass o WHERE o.oid = ANY ({classes})),
    (SELECT string_agg(c.xmin::text, ',' ORDER BY c.oid) FROM pg_collation c WHERE c.oid = ANY ({collations})),
    (SELECT string_agg(n.xmin::text, ',' ORDER BY n.oid) FROM pg_namespace n WHERE n.oid = ANY ({schemas})),
    -- One that a split raises has another version, which says nothing of who may draw from it.
    (SELECT string_agg(concat_ws(' ', s.oid, s.relowner, s.relnamespace, s.relname, s.relacl), ',' ORDER BY s.oid)
       FROM pg_class s WHERE s.oid = ANY ({sequences})),
    (SELECT string_agg(concat_ws(' ', r.oid, r.rolsuper, r.rolname), ',' ORDER BY r.oid) FROM pg_roles r
      WHERE r.oid = ANY ({owners})),
    (SELECT string_agg(concat_ws(' ', n.oid, n.xmin, o.class, o.oid, o.version), ',' ORDER BY n.oid, o.class, o.oid)
       FROM unnest({spaces}::name[], {words}::name[]) AS w (nsp, name)
       JOIN pg_namespace n ON n.nspname = w.nsp AND n.nspname <> 'pg_catalog'
       LEFT JOIN LATERAL (
         SELECT 'p', p.oid, p.xmin FROM pg_proc p WHERE p.proname = w.name AND p.pronamespace = n.oid
         UNION ALL SELECT 't', t.oid, t.xmin FROM pg_type t WHERE t.typname = w.name AND t.typnamespace = n.oid
         UNION ALL SELECT 'o', o.oid, o.xmin FROM pg_operator o WHERE w.name IS NULL AND o.oprnamespace = n.oid
      ) AS o (class, oid, version) ON true),
    (SELECT string_agg(o.xmin::text, ',' ORDER BY o.oid) FROM pg_opclass o WHERE o.oid >= 16384),
    (SELECT string_agg(o.xmin::text, ',' ORDER BY o.oid) FROM pg_amop o WHERE o.oid >= 16384),
    (SELECT string_agg(p.xmin::text, ',' ORDER BY p.oid) FROM pg_amproc p WHERE p.oid >= 16384),
    (SELECT string_agg(c.xmin::text, ',' ORDER BY c.oid) FROM pg_cast c WHERE c.oid >= 16384),
    (SELECT string_agg(e.xmin::text, ',' ORDER BY e.oid) FROM pg_extension e),
    (SELECT string_agg(e.xmin::text, ',' ORDER BY e.oid) FROM pg_event_trigger e))::text))
