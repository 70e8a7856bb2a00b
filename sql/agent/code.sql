-- What could make a query over tables run code, as one number: another one says that it is
-- to be looked through again. $1: schemas, $2: tables; those bound to them by foreign keys,
-- too. Types, because what a value is made of may have constraints and casts of its own. Read
-- in every step, so by the catalogs' indexes, whatever the planner takes the lists for.
(WITH RECURSIVE named (oid) AS (
    SELECT (SELECT c.oid FROM pg_class c
             WHERE c.relname = w.rel AND c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = w.nsp))
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
), moving (oids) AS (
    SELECT ARRAY(SELECT n.oid FROM named n UNION SELECT p.relid FROM named n, pg_partition_tree(n.oid) p)
), bound (oids) AS (
    -- Each end of a foreign key has triggers that name the other.
    SELECT ARRAY(SELECT unnest(m.oids)
                  UNION SELECT g.tgconstrrelid FROM pg_trigger g WHERE g.tgrelid = ANY (m.oids) AND g.tgconstrrelid <> 0)
      FROM moving m
), heir (oid) AS (
    SELECT unnest(b.oids) FROM bound b
    UNION SELECT i.inhrelid FROM heir h JOIN pg_inherits i ON i.inhparent = h.oid
), member (oids) AS (
    SELECT ARRAY(SELECT h.oid FROM heir h)
), made_of (oid) AS (
    SELECT a.atttypid FROM pg_attribute a
     WHERE a.attrelid = ANY ((SELECT m.oids FROM member m)::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT child.oid
      FROM made_of p
     CROSS JOIN LATERAL (SELECT * FROM pg_type y WHERE y.oid = p.oid OFFSET 0) t
     CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                   WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r
                   WHERE t.typtype IN ('r', 'm') AND (r.rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid)
     ) AS child (oid)
     WHERE child.oid >= 16384
), known (relations, types) AS (
    SELECT m.oids, ARRAY(SELECT t.oid FROM made_of t) FROM member m
)
SELECT md5(string_agg(o.text, ',' ORDER BY o.text COLLATE "C"))
  FROM known w CROSS JOIN LATERAL (
        SELECT concat_ws(' ', 'r', c.oid, c.relowner, c.relkind) FROM pg_class c WHERE c.oid = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 'c', k.oid, k.xmin) FROM pg_constraint k WHERE k.conrelid = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 'i', i.indexrelid, i.xmin) FROM pg_index i WHERE i.indrelid = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 'a', d.oid, d.xmin) FROM pg_attrdef d WHERE d.adrelid = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 's', s.oid, s.xmin) FROM pg_statistic_ext s WHERE s.stxrelid = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 'w', r.oid, r.xmin) FROM pg_rewrite r WHERE r.ev_class = ANY (w.relations)
        UNION ALL SELECT concat_ws(' ', 't', g.oid, g.xmin) FROM pg_trigger g
                   WHERE g.tgrelid = ANY (w.relations) AND g.tgenabled IN ('A', 'R')
        UNION ALL SELECT concat_ws(' ', 'y', t.oid, md5(t.typdefaultbin::text)) FROM pg_type t
                   WHERE t.oid = ANY (w.types) AND t.typdefaultbin IS NOT NULL
        UNION ALL SELECT concat_ws(' ', 'd', k.oid, k.xmin) FROM pg_constraint k WHERE k.contypid = ANY (w.types)
        -- Without an index by what is cast to.
        UNION ALL SELECT concat_ws(' ', 'x', c.oid, c.xmin) FROM pg_cast c
                   WHERE w.types <> '{}' AND (c.castsource = ANY (w.types) OR c.casttarget = ANY (w.types))
        UNION ALL SELECT concat_ws(' ', 'e', e.oid, e.xmin) FROM pg_event_trigger e) AS o (text))
