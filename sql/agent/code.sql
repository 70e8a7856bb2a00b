-- What could make a query over tables run code, as one number: another one says that it is
-- to be looked through again. $1: schemas, $2: tables; those bound to
-- them by foreign keys, too. Types, because what a value is made of
-- may have constraints and casts of its own.
(WITH RECURSIVE named AS (
    SELECT c.oid
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), inner_member AS (
    SELECT n.oid FROM named n UNION SELECT p.relid FROM named n, pg_partition_tree(n.oid) p
), bound AS (
    SELECT m.oid FROM inner_member m
    UNION SELECT f.conrelid FROM inner_member m JOIN pg_constraint f ON f.confrelid = m.oid AND f.contype = 'f'
    UNION SELECT f.confrelid FROM inner_member m JOIN pg_constraint f ON f.conrelid = m.oid AND f.contype = 'f'
), member AS (
    SELECT l.oid, l.relowner, l.relkind
      FROM (SELECT b.oid FROM bound b UNION SELECT p.relid FROM bound b, pg_partition_tree(b.oid) p) b
      JOIN pg_class l ON l.oid = b.oid
), made_of (oid) AS (
    SELECT a.atttypid FROM member m JOIN pg_attribute a ON a.attrelid = m.oid
     WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT child.oid
      FROM made_of p JOIN pg_type t ON t.oid = p.oid
     CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                   WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r
                   WHERE r.rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
     ) AS child (oid)
     WHERE child.oid >= 16384
)
SELECT md5(string_agg(o.text, ',' ORDER BY o.text COLLATE "C"))
  FROM (SELECT concat_ws(' ', 'r', m.oid, m.relowner, m.relkind) FROM member m
        UNION ALL SELECT concat_ws(' ', 'c', k.oid, k.xmin) FROM member m JOIN pg_constraint k ON k.conrelid = m.oid
        UNION ALL SELECT concat_ws(' ', 'i', i.indexrelid, i.xmin) FROM member m JOIN pg_index i ON i.indrelid = m.oid
        UNION ALL SELECT concat_ws(' ', 'a', d.oid, d.xmin) FROM member m JOIN pg_attrdef d ON d.adrelid = m.oid
        UNION ALL SELECT concat_ws(' ', 's', s.oid, s.xmin) FROM member m JOIN pg_statistic_ext s ON s.stxrelid = m.oid
        UNION ALL SELECT concat_ws(' ', 'w', r.oid, r.xmin) FROM member m JOIN pg_rewrite r ON r.ev_class = m.oid
        UNION ALL SELECT concat_ws(' ', 't', g.oid, g.xmin) FROM member m JOIN pg_trigger g ON g.tgrelid = m.oid
                   WHERE g.tgenabled IN ('A', 'R')
        UNION ALL SELECT concat_ws(' ', 'd', k.oid, k.xmin) FROM made_of t JOIN pg_constraint k ON k.contypid = t.oid
        UNION ALL SELECT concat_ws(' ', 'x', c.oid, c.xmin) FROM made_of t JOIN pg_cast c ON t.oid IN (c.castsource, c.casttarget)
        UNION ALL SELECT concat_ws(' ', 'e', e.oid, e.xmin) FROM pg_event_trigger e) AS o (text))
