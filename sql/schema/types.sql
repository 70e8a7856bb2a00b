-- Schemas, extensions, types, functions and sequences that the tables need.
SELECT 1, CASE WHEN n.oid IN (SELECT relnamespace FROM member UNION SELECT typnamespace FROM made_type
                                UNION SELECT pronamespace FROM made_function UNION SELECT relnamespace FROM made_sequence)
               -- What is not needed is there all the same, for what comes.
               THEN 'schema' ELSE 'unused schema' END, s.name, NULL, '', 'CREATE SCHEMA ' || s.name, n.oid::bigint
  FROM pg_namespace n
 CROSS JOIN LATERAL (SELECT CASE WHEN n.nspname = {schema} THEN '(namespace)' ELSE quote_ident(n.nspname) END) AS s (name)
 WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
UNION ALL
SELECT 2, CASE WHEN x.oid IN (SELECT oid FROM extension) THEN 'extension' ELSE 'unused extension' END,
       quote_ident(x.extname), NULL, '', NULL, x.oid::bigint
  FROM pg_extension x
UNION ALL
SELECT 3, 'type', t.oid::regtype::text, NULL,
       d.definition || coalesce(d.later, ''),
       format('CREATE %s %s %s%s', CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, t.oid::regtype, d.definition, d.later), t.oid::bigint
  FROM made_type t
 CROSS JOIN LATERAL (
    SELECT 'AS ENUM (' || coalesce(string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder), '') || ')', NULL
      FROM pg_enum e WHERE t.typtype = 'e' AND e.enumtypid = t.oid HAVING t.typtype = 'e'
    UNION ALL
    SELECT 'AS (' || coalesce(string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                       CASE WHEN a.attcollation NOT IN (0, u.typcollation) THEN format(' COLLATE %s', a.attcollation::regcollation) END),
                   ', ' ORDER BY a.attnum), '') || ')', NULL
      FROM pg_attribute a JOIN pg_type u ON u.oid = a.atttypid
     WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped HAVING t.typtype = 'c'
    UNION ALL
    SELECT 'AS ' || format_type(t.typbasetype, t.typtypmod)
           || CASE WHEN t.typcollation NOT IN (0, b.typcollation) THEN format(' COLLATE %s', t.typcollation::regcollation) ELSE '' END
           || coalesce(' DEFAULT ' || pg_get_expr(t.typdefaultbin, 0), '')
           || CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END
           || coalesce((SELECT string_agg(format(' CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname)
                          FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c' AND k.convalidated), ''),
           -- No domain begins with one that is not valid.
           (SELECT string_agg(format('; ALTER DOMAIN %s ADD CONSTRAINT %I %s', t.oid::regtype, k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname)
              FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c' AND NOT k.convalidated)
      FROM pg_type b WHERE t.typtype = 'd' AND b.oid = t.typbasetype
    UNION ALL
    SELECT format('AS RANGE (subtype = %s', format_type(r.rngsubtype, NULL))
           || CASE WHEN NOT o.opcdefault THEN format(', subtype_opclass = %I.%I', n.nspname, o.opcname) ELSE '' END
           || CASE WHEN r.rngcollation NOT IN (0, s.typcollation) THEN format(', collation = %s', r.rngcollation::regcollation) ELSE '' END
           || CASE WHEN r.rngsubdiff <> 0 THEN format(', subtype_diff = %s', r.rngsubdiff::regproc) ELSE '' END
           || CASE WHEN u.typname <> CASE WHEN t.typname LIKE '%range%' THEN overlay(t.typname PLACING 'multirange' FROM strpos(t.typname, 'range') FOR 5)
                                          ELSE t.typname || '_multirange' END
                   THEN format(', multirange_type_name = %s', u.oid::regtype) ELSE '' END
           -- A canonical function needs the type before it is there: it stands here, and cannot be made.
           || CASE WHEN r.rngcanonical <> 0 THEN format(', canonical = %s', r.rngcanonical::regproc) ELSE '' END || ')', NULL
      FROM pg_range r JOIN pg_opclass o ON o.oid = r.rngsubopc JOIN pg_namespace n ON n.oid = o.opcnamespace JOIN pg_type s ON s.oid = r.rngsubtype
      LEFT JOIN pg_type u ON u.oid = (to_jsonb(r) ->> 'rngmultitypid')::oid
     WHERE t.typtype = 'r' AND r.rngtypid = t.oid
 ) AS d (definition, later)
UNION ALL
-- What is not made, and has to be the same where it is called the same.
SELECT 2, x.kind, x.name, NULL, x.definition, NULL, o.objid::bigint
  FROM own o
 CROSS JOIN LATERAL (
    SELECT 'operator', p.oid::regoperator::text,
           concat_ws(' ', p.oprcode::regprocedure, NULLIF(p.oprcom, 0)::regoperator, NULLIF(p.oprnegate, 0)::regoperator, p.oprrest, p.oprjoin, p.oprcanmerge, p.oprcanhash)
      FROM pg_operator p WHERE o.classid = 'pg_operator'::regclass AND p.oid = o.objid
    UNION ALL
    SELECT 'collation', c.oid::regcollation::text,
           concat_ws(' ', c.collprovider, c.collisdeterministic, c.collcollate, c.collctype, j ->> 'colliculocale', j ->> 'colllocale', j ->> 'collicurules')
      FROM pg_collation c CROSS JOIN LATERAL to_jsonb(c) AS j WHERE o.classid = 'pg_collation'::regclass AND c.oid = o.objid
    UNION ALL
    SELECT 'operator class', format('%s USING %I', CASE WHEN pg_opclass_is_visible(c.oid) THEN quote_ident(c.opcname) ELSE format('%I.%I', n.nspname, c.opcname) END, a.amname),
           concat_ws(' ', 'FOR TYPE', c.opcintype::regtype, NULLIF(c.opckeytype, 0)::regtype,
                     (SELECT string_agg(format('%s %s', s.amopstrategy, s.amopopr::regoperator), ', ' ORDER BY s.amopstrategy, s.amopopr::regoperator::text)
                        FROM pg_amop s WHERE s.amopfamily = c.opcfamily AND s.amoplefttype = c.opcintype),
                     (SELECT string_agg(format('%s %s', s.amprocnum, s.amproc::regprocedure), ', ' ORDER BY s.amprocnum, s.amproc::regprocedure::text)
                        FROM pg_amproc s WHERE s.amprocfamily = c.opcfamily AND s.amproclefttype = c.opcintype))
      FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod JOIN pg_namespace n ON n.oid = c.opcnamespace
     WHERE o.classid = 'pg_opclass'::regclass AND c.oid = o.objid
    UNION ALL
    SELECT 'aggregate', g.aggfnoid::regprocedure::text,
           concat_ws(' ', g.aggkind, g.aggtransfn::regprocedure, g.aggtranstype::regtype, g.aggfinalfn, g.aggcombinefn, g.agginitval)
      FROM pg_aggregate g WHERE o.classid = 'pg_proc'::regclass AND g.aggfnoid = o.objid
    UNION ALL
    SELECT 'text search configuration', c.oid::regconfig::text,
           concat_ws(' ', p.prsname, (SELECT string_agg(format('%s %s', m.maptokentype, m.mapdict::regdictionary), ', ' ORDER BY m.maptokentype, m.mapseqno)
                                        FROM pg_ts_config_map m WHERE m.mapcfg = c.oid))
      FROM pg_ts_config c JOIN pg_ts_parser p ON p.oid = c.cfgparser WHERE o.classid = 'pg_ts_config'::regclass AND c.oid = o.objid
    UNION ALL
    SELECT 'text search dictionary', d.oid::regdictionary::text, concat_ws(' ', t.tmplname, d.dictinitoption)
      FROM pg_ts_dict d JOIN pg_ts_template t ON t.oid = d.dicttemplate WHERE o.classid = 'pg_ts_dict'::regclass AND d.oid = o.objid
    UNION ALL
    SELECT 'base type', t.oid::regtype::text, concat_ws(' ', t.typinput, t.typoutput, t.typlen, t.typalign, t.typstorage)
      FROM pg_type t WHERE o.classid = 'pg_type'::regclass AND t.oid = o.objid AND t.typtype = 'b' AND NOT EXISTS (SELECT 1 FROM pg_type e WHERE e.typarray = t.oid)
  ) AS x (kind, name, definition)
UNION ALL
-- Those that take a table's rows, or read it by a body of standard SQL, come after the tables.
SELECT CASE WHEN EXISTS (SELECT 1 FROM pg_depend d JOIN member m
                            ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.oid
                               OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (SELECT t.oid FROM pg_type t WHERE m.reltype IN (t.oid, t.typelem))
                          WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid)
            THEN 6 ELSE 3 END,
       'function', p.oid::regprocedure::text, NULL, d.definition, d.definition, p.oid::bigint
  FROM made_function p JOIN pg_namespace n ON n.oid = p.pronamespace
 CROSS JOIN LATERAL (SELECT pg_get_functiondef(p.oid), format('CREATE OR REPLACE FUNCTION %I.%I', n.nspname, p.proname)) AS f (text, head)
 CROSS JOIN LATERAL (SELECT CASE WHEN starts_with(f.text, f.head)
                                 THEN 'CREATE FUNCTION ' || CASE WHEN pg_function_is_visible(p.oid) THEN '' ELSE quote_ident(n.nspname) || '.' END
                                      || quote_ident(p.proname) || substr(f.text, length(f.head) + 1) END) AS d (definition)
UNION ALL
SELECT 2, 'sequence', s.oid::regclass::text, NULL, d.definition || CASE WHEN e.is_else THEN format('; OWNED BY %s', s.owner_table::regclass) ELSE '' END,
       CASE WHEN NOT e.is_else THEN format('CREATE %sSEQUENCE %s %s', CASE s.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, s.oid::regclass, d.definition) END, s.oid::bigint
  FROM made_sequence s
 -- With a table that is not looked at it would go, and does not where it belongs to none.
 CROSS JOIN LATERAL (SELECT s.owned IS NOT NULL AND s.owner_table NOT IN (SELECT oid FROM member)) AS e (is_else)
 CROSS JOIN LATERAL (SELECT format('AS %s START %s INCREMENT %s MINVALUE %s MAXVALUE %s CACHE %s%s', format_type(s.seqtypid, NULL),
                                   s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' ELSE '' END)) AS d (definition)
 WHERE s.owned IS DISTINCT FROM 'i'
