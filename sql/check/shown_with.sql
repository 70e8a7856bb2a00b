-- Tables that views over some tables read besides. $1: schemas, $2: tables. Schema, name.
WITH RECURSIVE wanted AS (
    SELECT c.oid FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), shown (oid) AS (
    SELECT w.oid FROM wanted w
    UNION
    SELECT r.ev_class FROM shown s
      JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.classid = 'pg_rewrite'::regclass
      JOIN pg_rewrite r ON r.oid = d.objid
), read (oid) AS (
    SELECT s.oid FROM shown s
    UNION
    -- A view may read another one, which reads none of these.
    SELECT d.refobjid FROM read o JOIN pg_rewrite r ON r.ev_class = o.oid
      JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
)
SELECT n.nspname, c.relname FROM read o JOIN pg_class c ON c.oid = o.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384 AND c.oid NOT IN (SELECT w.oid FROM wanted w)
 ORDER BY 1, 2
