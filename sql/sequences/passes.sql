-- Where writes to tables and views lead: to functions of their triggers, to what their rules name, to what views show, to partitions.
-- Number of the table, its name, in small letters, how SQL calls it; a function's number, or another table's, and the text that names others: what the
-- trigger tells its function.
SELECT c.oid, lower(c.relname), c.oid::regclass, s.function, s.relation, lower(s.text)
  FROM (SELECT g.tgrelid, g.tgfoid, NULL::oid, {told} FROM pg_trigger g WHERE NOT g.tgisinternal AND g.tgenabled <> 'D'
        UNION
        SELECT r.ev_class, CASE WHEN d.refclassid = 'pg_proc'::regclass THEN d.refobjid END,
               CASE WHEN d.refclassid = 'pg_class'::regclass THEN d.refobjid END, NULL
          FROM pg_rewrite r
          JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refobjid >= 16384 AND d.refobjid <> r.ev_class
                          AND d.refclassid IN ('pg_proc'::regclass, 'pg_class'::regclass)
         WHERE r.ev_enabled <> 'D'
        UNION
        SELECT i.inhparent, NULL, i.inhrelid, NULL FROM pg_inherits i) s (oid, function, relation, text)
  JOIN pg_class c ON c.oid = s.oid AND c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'f')
 WHERE c.relnamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
UNION ALL
-- Partitions, by their own names, and the tables themselves.
SELECT p.relid, lower(c.relname), c.oid::regclass, NULL, w.relation, 'partition'
  FROM unnest($1::oid[]) w (relation) CROSS JOIN LATERAL pg_partition_tree(w.relation) p JOIN pg_class c ON c.oid = p.relid
 WHERE p.relid <> w.relation
UNION ALL
SELECT c.oid, lower(c.relname), c.oid::regclass, NULL, NULL, NULL FROM unnest($1::oid[]) w (relation) JOIN pg_class c ON c.oid = w.relation
