-- All that CREATE EXTENSION has made, one line for each property of each object: what
-- ALTER EXTENSION UPDATE comes to has to be the same. Run by scripts/updates.sh, with psql -At.
-- Left out: oids, and where among the others a column stands, since one that is added comes last.

SET search_path = pg_catalog;

CREATE TEMPORARY VIEW member AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
  FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
 WHERE e.extname = 'shardmaster' AND d.deptype = 'e';

CREATE TEMPORARY VIEW of_table AS
SELECT c.oid, m.name, c.relkind, c.relacl, c.reloptions, c.relpersistence, c.relrowsecurity
  FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid;

-- Who has which right, in one order.
CREATE FUNCTION pg_temp.rights(acl aclitem[]) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(concat_ws(' ', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, privilege_type,
                                CASE WHEN is_grantable THEN 'grantable' END), ', '
                      ORDER BY grantee::regrole::text, privilege_type)
      FROM aclexplode(acl)
$$;

SELECT concat_ws(E': ', name, what, replace(value, E'\n', E'\\n')) COLLATE "C" AS line FROM (
    SELECT name, 'is there' AS what, '' AS value FROM member
    UNION ALL
    SELECT name, 'comment', obj_description(objid, classid::regclass::name) FROM member
    UNION ALL
    SELECT m.name, 'function', concat_ws(' ', p.prokind, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
           p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, p.proleakproof, p.procost, p.prorows, p.proconfig::text,
           p.probin, p.prosrc, p.prosupport::regproc)
      FROM member m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid JOIN pg_language l ON l.oid = p.prolang
    UNION ALL
    SELECT m.name, 'rights', pg_temp.rights(p.proacl) FROM member m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
    UNION ALL
    SELECT m.name, 'rights', pg_temp.rights(n.nspacl) FROM member m JOIN pg_namespace n ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid
    UNION ALL
    SELECT m.name, 'type', concat_ws(' ', t.typtype, t.typname, format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault, t.typcategory,
           (SELECT string_agg(enumlabel, ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid))
      FROM member m JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
    UNION ALL
    SELECT name, 'relation', concat_ws(' ', relkind, relpersistence, relrowsecurity, reloptions::text) FROM of_table
    UNION ALL
    SELECT name, 'rights', pg_temp.rights(relacl) FROM of_table
    UNION ALL
    SELECT name, 'view', pg_get_viewdef(oid) FROM of_table WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT t.name, 'column ' || quote_ident(a.attname), concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated,
           a.attidentity, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid), pg_temp.rights(a.attacl),
           col_description(t.oid, a.attnum))
      FROM of_table t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION ALL
    SELECT t.name, 'constraint ' || quote_ident(c.conname), pg_get_constraintdef(c.oid) || coalesce(' ' || obj_description(c.oid, 'pg_constraint'), '')
      FROM of_table t JOIN pg_constraint c ON c.conrelid = t.oid
    UNION ALL
    SELECT t.name, 'index ' || i.indexrelid::regclass, pg_get_indexdef(i.indexrelid) || ' ' || i.indisvalid
      FROM of_table t JOIN pg_index i ON i.indrelid = t.oid
    UNION ALL
    SELECT t.name, 'trigger ' || quote_ident(g.tgname), pg_get_triggerdef(g.oid) || ' ' || g.tgenabled::text
      FROM of_table t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
    UNION ALL
    SELECT t.name, 'sequence', concat_ws(' ', format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)
      FROM of_table t JOIN pg_sequence s ON s.seqrelid = t.oid
    UNION ALL
    SELECT m.name, 'event trigger', concat_ws(' ', e.evtevent, e.evtfoid::regproc, e.evtenabled, e.evttags::text)
      FROM member m JOIN pg_event_trigger e ON m.classid = 'pg_event_trigger'::regclass AND e.oid = m.objid
    UNION ALL
    -- What cannot be dropped before it.
    SELECT m.name, 'needs', pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
      FROM member m JOIN pg_depend d USING (classid, objid) WHERE d.deptype = 'n'
    UNION ALL
    -- What pg_dump takes along.
    SELECT pg_describe_object('pg_class'::regclass, u.relation, 0), 'dumped', u.condition
      FROM pg_extension e, ROWS FROM (unnest(e.extconfig), unnest(e.extcondition)) AS u (relation, condition)
     WHERE e.extname = 'shardmaster'
    UNION ALL
    SELECT m.name, 'initial rights', pg_temp.rights(i.initprivs)
      FROM member m JOIN pg_init_privs i ON i.classoid = m.classid AND i.objoid = m.objid
) properties
 WHERE value IS NOT NULL
 ORDER BY line;
