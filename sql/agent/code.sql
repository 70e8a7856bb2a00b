-- What could make a query over tables run code, as one number: another one says that it is
-- to be looked through again; or more with it. $1: schemas, $2: tables; those bound to them by foreign keys,
-- too; {schemas}, {names}: what texts name that are read anew each time, {columns}: of each
-- table the column whose text is, if it is generated. With all that their
-- expressions and types are made of, whose that is, and whether these are superusers. Read
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
), above (oids) AS (
    -- By the keys of those above it is decided what may be written to a partition.
    SELECT ARRAY(SELECT p.relid::oid FROM heir h, pg_partition_ancestors(h.oid) p)
), caller (kind, classid, objid, version) AS (
    SELECT o.* FROM member w CROSS JOIN above b CROSS JOIN LATERAL (
        SELECT 'r', 'pg_class'::regclass::oid, c.oid, concat_ws(' ', c.relowner, c.relkind, c.relnamespace::regnamespace, c.relname) FROM pg_class c WHERE c.oid = ANY (w.oids || b.oids)
        UNION ALL SELECT 'c', 'pg_constraint'::regclass, k.oid, k.xmin::text FROM pg_constraint k WHERE k.conrelid = ANY (w.oids)
        UNION ALL SELECT 'i', 'pg_class'::regclass, i.indexrelid, i.xmin::text FROM pg_index i WHERE i.indrelid = ANY (w.oids)
        UNION ALL SELECT 'a', 'pg_attrdef'::regclass, d.oid, d.xmin::text FROM pg_attrdef d WHERE d.adrelid = ANY (w.oids)
        UNION ALL SELECT 's', 'pg_statistic_ext'::regclass, s.oid, s.xmin::text FROM pg_statistic_ext s WHERE s.stxrelid = ANY (w.oids)
        UNION ALL SELECT 'w', 'pg_rewrite'::regclass, r.oid, r.xmin::text FROM pg_rewrite r WHERE r.ev_class = ANY (w.oids)
        -- Those of splits are the mover's own, as sql/check/owners.sql says: others that begin and end beside this one say nothing of code.
        UNION ALL SELECT 't', 'pg_trigger'::regclass, g.oid, g.xmin::text FROM pg_trigger g
                   WHERE g.tgrelid = ANY (w.oids) AND g.tgenabled IN ('A', 'R')
                     AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = g.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
        UNION ALL SELECT 'e', 'pg_event_trigger'::regclass, e.oid, e.xmin::text FROM pg_event_trigger e) AS o
), whole (castfunc, relid) AS (
{whole}
), word (nsp, name) AS (
    SELECT w.nsp, w.name FROM unnest({schemas}::name[], {names}::name[]) AS w (nsp, name)
    UNION
    SELECT n.nspname, g.name FROM (
{generated}
    ) AS g (relid, shard_by, nsp, name) JOIN pg_namespace n ON n.oid = g.nsp
), named_by_texts (space, version, classid, objid) AS (
    SELECT n.oid, n.xmin, o.classid, o.oid
      FROM word w
      JOIN pg_namespace n ON n.nspname = w.nsp AND n.nspname <> 'pg_catalog'
      LEFT JOIN LATERAL (
        SELECT 'pg_proc'::regclass::oid, p.oid FROM pg_proc p WHERE p.proname = w.name AND p.pronamespace = n.oid
        UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_type t WHERE t.typname = w.name AND t.typnamespace = n.oid
        UNION ALL SELECT 'pg_operator'::regclass, o.oid FROM pg_operator o WHERE w.name IS NULL AND o.oprnamespace = n.oid
     ) AS o (classid, oid) ON true
), reached (classid, objid) AS (
    SELECT d.refclassid, d.refobjid
      FROM caller c CROSS JOIN LATERAL (SELECT * FROM pg_depend p WHERE p.classid = c.classid AND p.objid = c.objid OFFSET 0) d
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_type'::regclass)
    UNION SELECT n.classid, n.objid FROM named_by_texts n WHERE n.objid IS NOT NULL
    UNION SELECT 'pg_proc'::regclass, w.castfunc FROM whole w
    UNION SELECT 'pg_opclass'::regclass, unnest(i.indclass::oid[]) FROM member w JOIN pg_index i ON i.indrelid = ANY (w.oids)
    UNION
    SELECT 'pg_opclass'::regclass, o.oid FROM pg_opclass o
     WHERE o.oid >= 16384 AND o.opcdefault
       AND (o.opcintype < 16384
            OR o.opcintype IN (SELECT a.atttypid FROM named n JOIN pg_attribute a ON a.attrelid = n.oid AND a.attnum > 0))
    UNION
    -- Types of which pg_depend knows nothing.
    SELECT 'pg_type'::regclass, f.found[1]::oid
      -- Partitions mostly have the same, which are read once.
      FROM (SELECT DISTINCT x.tree FROM member w CROSS JOIN above b CROSS JOIN LATERAL (
        SELECT k.conbin::text FROM pg_constraint k WHERE k.conrelid = ANY (w.oids)
        UNION ALL SELECT concat(i.indexprs::text, i.indpred::text) FROM pg_index i WHERE i.indrelid = ANY (w.oids)
        UNION ALL SELECT d.adbin::text FROM pg_attrdef d WHERE d.adrelid = ANY (w.oids)
        UNION ALL SELECT to_jsonb(s) ->> 'stxexprs' FROM pg_statistic_ext s WHERE s.stxrelid = ANY (w.oids)
        UNION ALL SELECT g.tgqual::text FROM pg_trigger g WHERE g.tgrelid = ANY (w.oids) AND g.tgenabled IN ('A', 'R')
                     AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = g.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
        UNION ALL SELECT p.partexprs::text FROM pg_partitioned_table p WHERE p.partrelid = ANY (w.oids || b.oids)
     ) AS x (tree)) AS x CROSS JOIN regexp_matches(x.tree, ':(?:array_typeid|element_typeid|typid) (\d+)', 'g') AS f (found)
     WHERE f.found[1]::oid >= 16384
    UNION
    SELECT next.classid, next.objid FROM reached r CROSS JOIN LATERAL (
{reaches}
     ) AS next (classid, objid)
), read (oid, owner) AS (
    -- By functions whose bodies are standard SQL.
    SELECT DISTINCT l.oid, l.relowner
      FROM reached r CROSS JOIN LATERAL (SELECT * FROM pg_depend p WHERE p.classid = 'pg_proc'::regclass AND p.objid = r.objid OFFSET 0) d
     CROSS JOIN LATERAL (SELECT c.oid, c.relowner FROM pg_class c WHERE c.oid = d.refobjid AND c.relkind <> 'S' OFFSET 0) l
     WHERE r.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_class'::regclass
), made_of (classid, oids) AS (
    SELECT r.classid, array_agg(r.objid) FROM reached r GROUP BY r.classid
), drawn (oid, text) AS (
    -- Who may draw from a sequence. Its row has another version whenever a split raises it, which says nothing of that.
    SELECT s.oid, concat_ws(' ', 'q', s.oid, s.relowner, s.relnamespace, s.relname, s.relacl)
      FROM (SELECT c.classid, c.objid FROM caller c UNION SELECT r.classid, r.objid FROM reached r) c
     CROSS JOIN LATERAL (SELECT * FROM pg_depend p WHERE p.classid = c.classid AND p.objid = c.objid OFFSET 0) d
     CROSS JOIN LATERAL (SELECT l.oid, l.relowner, l.relnamespace, l.relname, l.relacl, l.relkind FROM pg_class l WHERE l.oid = d.refobjid OFFSET 0) s
     WHERE d.refclassid = 'pg_class'::regclass AND s.relkind = 'S'
), version (text, owner) AS (
    SELECT concat_ws(' ', c.kind, c.objid, c.version), (SELECT t.relowner FROM pg_class t WHERE c.kind = 'r' AND t.oid = c.objid)
      FROM caller c
    UNION ALL SELECT concat_ws(' ', 'n', n.space, n.version), NULL FROM named_by_texts n
    UNION ALL
    SELECT o.* FROM made_of m CROSS JOIN LATERAL (
        SELECT concat_ws(' ', 'p', p.oid, p.xmin), p.proowner FROM pg_proc p
         WHERE m.classid = 'pg_proc'::regclass AND p.oid = ANY (m.oids)
        UNION ALL SELECT concat_ws(' ', 'o', p.oid, p.xmin), p.oprowner FROM pg_operator p
                   WHERE m.classid = 'pg_operator'::regclass AND p.oid = ANY (m.oids)
        UNION ALL SELECT concat_ws(' ', 'f', p.oid, p.xmin), p.opcowner FROM pg_opclass p
                   WHERE m.classid = 'pg_opclass'::regclass AND p.oid = ANY (m.oids)
        UNION ALL SELECT concat_ws(' ', 'd', k.oid, k.xmin), NULL FROM pg_constraint k
                   WHERE m.classid = 'pg_constraint'::regclass AND k.oid = ANY (m.oids)
        UNION ALL SELECT concat_ws(' ', 'y', t.oid, md5(t.typdefaultbin::text)), t.typowner FROM pg_type t
                   WHERE m.classid = 'pg_type'::regclass AND t.oid = ANY (m.oids)
        -- Without an index by what is cast to.
        UNION ALL SELECT concat_ws(' ', 'x', c.oid, c.xmin), NULL FROM pg_cast c
                   WHERE m.classid = 'pg_type'::regclass AND (c.castsource = ANY (m.oids) OR c.casttarget = ANY (m.oids))) AS o
    UNION ALL SELECT q.text, NULL FROM drawn q
    UNION ALL SELECT concat_ws(' ', 'l', l.oid, l.owner), l.owner FROM read l
    -- With whose rights all of it would run.
    UNION ALL SELECT NULL, r.oid FROM pg_roles r WHERE r.rolname = current_user
)
SELECT {answer}
  FROM (SELECT v.text FROM version v
        UNION ALL
        SELECT concat_ws(' ', 'u', r.oid, r.rolsuper, r.rolname) FROM pg_roles r
         WHERE r.oid IN (SELECT v.owner FROM version v)) AS o)
