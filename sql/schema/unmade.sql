-- What is in the schemas of the tables, or looks at them, and is not made: whoever uses it misses it on another shard.
-- {with_views}: what a function is, without the name of the tables' schema, and of those that are needed, too; also those of {functions}, a
-- JSON list of {nsp, rel}, and operators that clients may use. What an event trigger calls is nobody's to call.
SELECT 0, r.kind, r.name, NULL::text, coalesce(md5(regexp_replace(r.says, '\m' || regexp_replace({schema}, '(\W)', '\\\1', 'g') || '\M', '', 'g')), ''), NULL::text, r.number
  FROM (SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'sequence' END, c.oid::regclass::text, c.oid::bigint, NULL
          FROM pg_class c
         WHERE c.relkind IN ('v', 'm', 'S')
           AND (c.relnamespace IN (SELECT n.oid FROM pg_namespace n WHERE n.nspname = {schema} UNION SELECT m.relnamespace FROM member m)
                OR c.oid IN (SELECT w.ev_class FROM member m
                               JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.oid AND d.classid = 'pg_rewrite'::regclass
                               JOIN pg_rewrite w ON w.oid = d.objid))
           AND c.oid NOT IN (SELECT s.oid FROM made_sequence s)
           AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                              -- Of an extension, or of a column of a table that is not looked at either.
                              AND (d.deptype = 'e' OR c.relkind = 'S' AND d.deptype IN ('a', 'i') AND d.refclassid = 'pg_class'::regclass))
        UNION ALL
        SELECT CASE p.prokind WHEN 'p' THEN 'procedure' WHEN 'a' THEN 'aggregate' ELSE 'function' END, p.oid::regprocedure::text, p.oid::bigint,
               CASE WHEN {with_views} AND p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END
          FROM pg_proc p
         WHERE CASE WHEN p.oid IN (SELECT f.oid FROM made_function f) THEN {with_views}
                    ELSE p.pronamespace IN (SELECT n.oid FROM pg_namespace n WHERE n.nspname = {schema} UNION SELECT m.relnamespace FROM member m)
                         OR {with_views} AND p.oid IN (SELECT f.oid FROM json_to_recordset({functions}) AS w (nsp text, rel text)
                                                         JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_proc f ON f.proname = w.rel AND f.pronamespace = n.oid) END
           AND NOT ({with_views} AND p.prorettype = 'event_trigger'::regtype)
           -- Of an extension, or of a range type.
           AND p.proname !~ '^shardmaster_derive_[0-9a-f]'
           AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype IN ('e', 'i'))
        UNION ALL
        SELECT 'clients'' operator', o.oid::regoperator::text, o.oid::bigint, concat_ws(' ', o.oprcode::regprocedure, o.oprresult::regtype)
          FROM pg_operator o
         WHERE {with_views} AND o.oid >= 16384
           AND o.oprnamespace IN (SELECT n.oid FROM pg_namespace n WHERE n.nspname = {schema} UNION SELECT m.relnamespace FROM member m)
           AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e')
       ) AS r (kind, name, number, says)
