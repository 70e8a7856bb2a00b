-- What a statement reads that may hold rows of a split which are not this shard's: such a table, by whatever name it has
-- by now, one of its partitions, another view over it, or a function that could read it. Found by what the server has written
-- down of the view that the statement was made of.
WITH RECURSIVE held (oid) AS (
    SELECT t.oid
      FROM ROWS FROM (pg_catalog.unnest({schemas}::pg_catalog.text[]), pg_catalog.unnest({names}::pg_catalog.text[])) AS w (nsp, rel)
      JOIN pg_catalog.pg_namespace n ON n.nspname = w.nsp
      JOIN pg_catalog.pg_class t ON t.relnamespace = n.oid AND t.relname = w.rel
    UNION
    -- A table that has been renamed keeps the split's triggers.
    SELECT t.tgrelid
      FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
      JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'shardmaster_agent'
     WHERE p.proname ~ {functions}
    UNION
    -- Partitions have a part of the rows, and what it inherits from has them, too.
    SELECT kin.oid
      FROM held h
      JOIN pg_catalog.pg_inherits i ON h.oid IN (i.inhparent, i.inhrelid)
     CROSS JOIN LATERAL (VALUES (i.inhparent), (i.inhrelid)) kin (oid)
), reached (class, object) AS (
    SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid, r.oid
      FROM pg_catalog.pg_rewrite r WHERE r.ev_class = 'pg_temp.shardmaster_asked'::pg_catalog.regclass
    UNION
    SELECT next.class, next.object
      FROM reached x
     CROSS JOIN LATERAL (
        SELECT d.refclassid, d.refobjid
          FROM pg_catalog.pg_depend d
          LEFT JOIN pg_catalog.pg_class c ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.refobjid
         WHERE d.classid = x.class AND d.objid = x.object AND x.class <> 'pg_catalog.pg_type'::pg_catalog.regclass
           AND d.refclassid IN ('pg_catalog.pg_class'::pg_catalog.regclass, 'pg_catalog.pg_proc'::pg_catalog.regclass,
                                'pg_catalog.pg_operator'::pg_catalog.regclass, 'pg_catalog.pg_cast'::pg_catalog.regclass,
                                'pg_catalog.pg_type'::pg_catalog.regclass)
           -- What the session sees instead of them.
           AND c.relnamespace IS DISTINCT FROM pg_catalog.pg_my_temp_schema()
        UNION ALL
        SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid, r.oid
          FROM pg_catalog.pg_rewrite r
         WHERE x.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND r.ev_class = x.object AND r.ev_type = '1'
        UNION ALL
        SELECT 'pg_catalog.pg_policy'::pg_catalog.regclass::pg_catalog.oid, l.oid
          FROM pg_catalog.pg_policy l
         WHERE x.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND l.polrelid = x.object
        UNION ALL
        -- Of types, domains alone run anything: what they check, and what their bases do.
        SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid, k.oid
          FROM pg_catalog.pg_constraint k
         WHERE x.class = 'pg_catalog.pg_type'::pg_catalog.regclass AND k.contypid = x.object
        UNION ALL
        SELECT x.class, y.typbasetype
          FROM pg_catalog.pg_type y
         WHERE x.class = 'pg_catalog.pg_type'::pg_catalog.regclass AND y.oid = x.object AND y.typtype = 'd'
     ) next (class, object)
)
SELECT 'table ' || x.object::pg_catalog.regclass
  FROM reached x JOIN held h ON h.oid = x.object AND x.class = 'pg_catalog.pg_class'::pg_catalog.regclass
UNION ALL
SELECT 'function ' || x.object::pg_catalog.regprocedure
  FROM reached x JOIN pg_catalog.pg_proc p ON p.oid = x.object AND x.class = 'pg_catalog.pg_proc'::pg_catalog.regclass
 WHERE p.provolatile <> 'i'
UNION ALL
SELECT 'foreign table ' || x.object::pg_catalog.regclass
  FROM reached x JOIN pg_catalog.pg_class c ON c.oid = x.object AND x.class = 'pg_catalog.pg_class'::pg_catalog.regclass
 WHERE c.relkind = 'f'
UNION ALL
-- Functions of the server's own that read what a text names: no dependency of these is written down, but their numbers are.
SELECT 'function ' || p.proname
  FROM reached x
  JOIN pg_catalog.pg_rewrite r ON r.oid = x.object AND x.class = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
 CROSS JOIN LATERAL pg_catalog.regexp_matches(r.ev_action::pg_catalog.text, ':funcid ([0-9]+)', 'g') found (number)
  JOIN pg_catalog.pg_proc p ON p.oid = found.number[1]::pg_catalog.oid
 WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
   AND p.proname ~ '^((query|table|schema|database|cursor)_to_xml.*|ts_stat|ts_rewrite|pg_read_.*|lo_get|loread)$'
 LIMIT 1
