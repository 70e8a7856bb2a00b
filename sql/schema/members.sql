-- What is looked at: tables, their partitions, and what they need. The query is read with the
-- server's own names alone. Before an object is written down, the search_path becomes that of the
-- shard's tables, so that their schema is in none of the texts: it may be another one elsewhere.
-- {with_views}: whether what views over them need is looked at as well, and text search configurations, which texts name.
-- {tables}: a JSON list of {nsp, rel}; {path}: the search_path; {schema}: the schema of the shard's tables, which is
-- called "(namespace)".
WITH RECURSIVE path AS MATERIALIZED (
    SELECT set_config('search_path', {path}, true) AS path
), wanted AS (
    SELECT c.oid FROM json_to_recordset({tables}) AS w (nsp text, rel text)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), member AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relnamespace, c.relkind, c.relispartition, c.relpersistence, c.relowner, c.relacl, c.reloptions,
           c.relam, c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.reltype, c.reloftype, c.relpartbound, c.reltoastrelid
      FROM pg_class c
     WHERE c.oid IN (SELECT oid FROM wanted UNION SELECT p.relid FROM wanted w, pg_partition_tree(w.oid) p)
), agent AS (
    SELECT oid FROM pg_namespace WHERE nspname = 'shardmaster_agent'
), shown (oid) AS (
    SELECT m.oid FROM member m WHERE {with_views}
    UNION
    SELECT r.ev_class FROM shown s JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), part (classid, objid) AS MATERIALIZED (
    -- What belongs to the tables.
    SELECT 'pg_class'::regclass::oid, m.oid FROM member m
    UNION ALL SELECT 'pg_attrdef'::regclass, d.oid FROM member m JOIN pg_attrdef d ON d.adrelid = m.oid
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM member m JOIN pg_constraint k ON k.conrelid = m.oid
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM member m JOIN pg_index i ON i.indrelid = m.oid
    UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM member m JOIN pg_policy p ON p.polrelid = m.oid
    UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid FROM member m JOIN pg_statistic_ext s ON s.stxrelid = m.oid
    UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid
     -- Those of derived columns name the schema of their shard: a job makes them.
     WHERE NOT t.tgisinternal AND t.tgname !~ '^zzz?_shardmaster_derive_[0-9a-f]'
       AND NOT EXISTS (SELECT 1 FROM pg_proc f JOIN agent a ON a.oid = f.pronamespace WHERE f.oid = t.tgfoid)
    UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM shown s JOIN pg_rewrite r ON r.ev_class = s.oid
     WHERE NOT EXISTS (SELECT 1 FROM member m WHERE m.oid = s.oid)
    UNION ALL SELECT 'pg_ts_config'::regclass, c.oid FROM pg_ts_config c WHERE {with_views} AND c.oid >= 16384
), needed (classid, objid) AS (
    SELECT classid, objid FROM part
    UNION
    SELECT next.classid, next.objid
      FROM needed n
     CROSS JOIN LATERAL (
        SELECT d.refclassid, d.refobjid FROM pg_depend d
         WHERE d.classid = n.classid AND d.objid = n.objid AND d.refobjid >= 16384
           AND d.refclassid IN ('pg_type'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass,
                                'pg_collation'::regclass, 'pg_class'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
           -- Of other relations the sequences, and those of composite types.
           AND (d.refclassid <> 'pg_class'::regclass
                OR EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = d.refobjid AND c.relkind IN ('S', 'c')))
        UNION ALL
        SELECT 'pg_class'::regclass, t.typrelid FROM pg_type t WHERE n.classid = 'pg_type'::regclass AND t.oid = n.objid AND t.typrelid <> 0
           AND t.typrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c')
        UNION ALL
        SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE n.classid = 'pg_type'::regclass AND k.contypid = n.objid
        UNION ALL
        -- Of serial columns.
        SELECT 'pg_class'::regclass, d.objid FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
         WHERE n.classid = 'pg_class'::regclass AND d.refclassid = n.classid AND d.refobjid = n.objid
           AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
      ) AS next (classid, objid)
), extension AS (
    SELECT DISTINCT e.oid, e.extname, n.classid, n.objid
      FROM needed n JOIN pg_depend d ON d.classid = n.classid AND d.objid = n.objid AND d.deptype = 'e'
      JOIN pg_extension e ON e.oid = d.refobjid
     WHERE d.refclassid = 'pg_extension'::regclass
), own AS MATERIALIZED (
    -- Not of an extension.
    SELECT n.classid, n.objid FROM needed n
     WHERE NOT EXISTS (SELECT 1 FROM extension e WHERE e.classid = n.classid AND e.objid = n.objid)
), made_type AS (
    SELECT t.* FROM own o JOIN pg_type t ON t.oid = o.objid
     WHERE o.classid = 'pg_type'::regclass AND t.oid >= 16384 AND t.typelem = 0
       AND t.typtype IN ('e', 'd', 'r', 'c') AND (t.typrelid = 0 OR EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))
), made_function AS (
    SELECT p.* FROM own o JOIN pg_proc p ON p.oid = o.objid JOIN pg_language l ON l.oid = p.prolang
     WHERE o.classid = 'pg_proc'::regclass AND p.oid >= 16384 AND p.prokind = 'f' AND p.pronamespace NOT IN (SELECT oid FROM agent)
       -- A range brings its own.
       AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'i')
), made_sequence AS (
    SELECT c.oid, c.relname, c.relnamespace, c.relowner, c.relacl, c.relpersistence, s.seqtypid, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle,
           i.refobjid AS owner_table, i.refobjsubid AS owner_column, i.deptype AS owned
      FROM own o JOIN pg_class c ON c.oid = o.objid AND c.relkind = 'S' JOIN pg_sequence s ON s.seqrelid = c.oid
      LEFT JOIN pg_depend i ON i.classid = 'pg_class'::regclass AND i.objid = c.oid AND i.refclassid = 'pg_class'::regclass
                           AND i.refobjsubid > 0 AND i.deptype IN ('a', 'i')
     WHERE o.classid = 'pg_class'::regclass
),
-- As CREATE TABLE has it.
column_of (attrelid, attnum, attname, definition) AS MATERIALIZED (
    SELECT a.attrelid, a.attnum, a.attname,
           format_type(a.atttypid, a.atttypmod)
           || CASE WHEN a.attcollation NOT IN (0, t.typcollation) THEN format(' COLLATE %s', a.attcollation::regcollation) ELSE '' END
           || CASE WHEN a.attgenerated = 's' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
                   WHEN a.attgenerated = 'v' THEN format(' GENERATED ALWAYS AS (%s) VIRTUAL', pg_get_expr(d.adbin, d.adrelid))
                   WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)
                   -- A partition has that of its table.
                   WHEN a.attidentity <> '' AND NOT m.relispartition
                   THEN format(' GENERATED %s AS IDENTITY (SEQUENCE NAME %s START %s INCREMENT %s MINVALUE %s MAXVALUE %s CACHE %s%s)',
                               CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, s.oid::regclass,
                               s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' ELSE '' END)
                   ELSE '' END
           || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           -- From PostgreSQL 18 on it is a constraint, which may be one for what comes alone.
           || coalesce((SELECT CASE WHEN k.connoinherit THEN ' NO INHERIT' ELSE '' END || CASE WHEN k.convalidated THEN '' ELSE ' NOT VALID' END
                          FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum]), '')
      FROM member m JOIN pg_attribute a ON a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      LEFT JOIN made_sequence s ON s.owner_table = a.attrelid AND s.owner_column = a.attnum AND s.owned = 'i'
), granted (word, name, on_table, column_name, kind, owner, of_owner, acl, number) AS MATERIALIZED (
    -- Whose things are, and who may what: of columns, where they differ from the table.
    SELECT 'TABLE', m.oid::regclass::text, m.oid::regclass::text, NULL::name, 'r'::"char", m.relowner, m.relowner, m.relacl, m.oid::bigint FROM member m
    UNION ALL
    SELECT 'TABLE', m.oid::regclass::text, m.oid::regclass::text, a.attname, 'c', NULL, m.relowner, a.attacl, m.oid::bigint
      FROM member m JOIN pg_attribute a ON a.attrelid = m.oid AND a.attacl IS NOT NULL AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    -- That of a column has the owner of its table.
    SELECT 'SEQUENCE', s.oid::regclass::text, NULL, NULL, 's', CASE WHEN s.owned IS NULL THEN s.relowner END, s.relowner, s.relacl, s.oid::bigint FROM made_sequence s
    UNION ALL
    SELECT 'TYPE', t.oid::regtype::text, NULL, NULL, 'T', t.typowner, t.typowner, t.typacl, t.oid::bigint FROM made_type t
    UNION ALL
    SELECT 'FUNCTION', p.oid::regprocedure::text, NULL, NULL, 'f', p.proowner, p.proowner, p.proacl, p.oid::bigint FROM made_function p
    UNION ALL
    SELECT 'STATISTICS', CASE WHEN pg_statistics_obj_is_visible(s.oid) THEN quote_ident(s.stxname) ELSE format('%I.%I', n.nspname, s.stxname) END,
           m.oid::regclass::text, NULL, 'r', s.stxowner, s.stxowner, NULL, s.oid::bigint
      FROM member m JOIN pg_statistic_ext s ON s.stxrelid = m.oid JOIN pg_namespace n ON n.oid = s.stxnamespace
    UNION ALL
    SELECT 'SCHEMA', CASE WHEN n.nspname = {schema} THEN '(namespace)' ELSE quote_ident(n.nspname) END, NULL, NULL, 'n', n.nspowner, n.nspowner, n.nspacl, n.oid::bigint
      FROM pg_namespace n
     WHERE n.oid IN (SELECT relnamespace FROM member UNION SELECT typnamespace FROM made_type
                     UNION SELECT pronamespace FROM made_function UNION SELECT relnamespace FROM made_sequence)
), object (step, kind, name, on_table, definition, statement, number) AS MATERIALIZED (
