-- Schemas, extensions, types, functions and sequences that the tables need.
SELECT 1, CASE WHEN n.oid IN (SELECT relnamespace FROM member UNION SELECT typnamespace FROM made_type
                                UNION SELECT pronamespace FROM made_function UNION SELECT relnamespace FROM made_sequence)
               -- What is not needed is there all the same, for what comes.
               THEN 'schema' ELSE 'unused schema' END, s.name, NULL, '', 'CREATE SCHEMA ' || s.name, n.oid::bigint
  FROM pg_namespace n
 CROSS JOIN LATERAL (SELECT CASE WHEN n.nspname = $NAMESPACE THEN '(namespace)' ELSE quote_ident(n.nspname) END) AS s (name)
 WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
UNION ALL
SELECT 2, CASE WHEN x.oid IN (SELECT oid FROM extension) THEN 'extension' ELSE 'unused extension' END,
       quote_ident(x.extname), NULL, '', NULL, x.oid::bigint
  FROM pg_extension x
UNION ALL
SELECT 3, 'type', t.oid::regtype::text, NULL,
       d.definition, format('CREATE %s %s %s', CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, t.oid::regtype, d.definition), t.oid::bigint
  FROM made_type t
 CROSS JOIN LATERAL (
    SELECT 'AS ENUM (' || coalesce(string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder), '') || ')'
      FROM pg_enum e WHERE t.typtype = 'e' AND e.enumtypid = t.oid HAVING t.typtype = 'e'
    UNION ALL
    SELECT 'AS (' || coalesce(string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                       CASE WHEN a.attcollation NOT IN (0, u.typcollation) THEN format(' COLLATE %s', a.attcollation::regcollation) END),
                   ', ' ORDER BY a.attnum), '') || ')'
      FROM pg_attribute a JOIN pg_type u ON u.oid = a.atttypid
     WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped HAVING t.typtype = 'c'
    UNION ALL
    SELECT 'AS ' || format_type(t.typbasetype, t.typtypmod)
           || CASE WHEN t.typcollation NOT IN (0, b.typcollation) THEN format(' COLLATE %s', t.typcollation::regcollation) ELSE '' END
           || coalesce(' DEFAULT ' || pg_get_expr(t.typdefaultbin, 0), '')
           || CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END
           || coalesce((SELECT string_agg(format(' CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname)
                          FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'), '')
      FROM pg_type b WHERE t.typtype = 'd' AND b.oid = t.typbasetype
    UNION ALL
    SELECT format('AS RANGE (subtype = %s', format_type(r.rngsubtype, NULL))
           || CASE WHEN NOT o.opcdefault THEN format(', subtype_opclass = %I.%I', n.nspname, o.opcname) ELSE '' END
           || CASE WHEN r.rngcollation NOT IN (0, s.typcollation) THEN format(', collation = %s', r.rngcollation::regcollation) ELSE '' END
           || CASE WHEN r.rngsubdiff <> 0 THEN format(', subtype_diff = %s', r.rngsubdiff::regproc) ELSE '' END
           -- A canonical function needs the type before it is there: it stands here, and cannot be made.
           || CASE WHEN r.rngcanonical <> 0 THEN format(', canonical = %s', r.rngcanonical::regproc) ELSE '' END || ')'
      FROM pg_range r JOIN pg_opclass o ON o.oid = r.rngsubopc JOIN pg_namespace n ON n.oid = o.opcnamespace JOIN pg_type s ON s.oid = r.rngsubtype
     WHERE t.typtype = 'r' AND r.rngtypid = t.oid
 ) AS d (definition)
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
SELECT 4, 'sequence', s.oid::regclass::text, NULL, d.definition,
       format('CREATE %sSEQUENCE %s %s', CASE s.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, s.oid::regclass, d.definition), s.oid::bigint
  FROM made_sequence s
 CROSS JOIN LATERAL (SELECT format('AS %s START %s INCREMENT %s MINVALUE %s MAXVALUE %s CACHE %s%s', format_type(s.seqtypid, NULL),
                                   s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' ELSE '' END)) AS d (definition)
 WHERE s.owned IS DISTINCT FROM 'i'
