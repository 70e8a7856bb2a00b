-- Names of the tables that queries over some tables read: these, and the other ends of their foreign keys. $1: schemas,
-- $2: tables. One JSON list, quoted, of those that can be locked at all: what is no table is refused by its kind.
-- Of the other ends those that may be read: whoever reads one that may not be finds that out beforehand.
WITH RECURSIVE wanted AS (
    SELECT c.oid
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), member AS (
    SELECT w.oid FROM wanted w UNION SELECT p.relid FROM wanted w, pg_partition_tree(w.oid) p
), bound AS (
    SELECT w.oid FROM wanted w
    UNION SELECT f.conrelid FROM member m JOIN pg_constraint f ON f.confrelid = m.oid AND f.contype = 'f' AND f.conparentid = 0
    UNION SELECT f.confrelid FROM member m JOIN pg_constraint f ON f.conrelid = m.oid AND f.contype = 'f' AND f.conparentid = 0
)
SELECT coalesce(json_agg(format('%I.%I', n.nspname, c.relname) ORDER BY c.oid), '[]')
  FROM bound b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p')
   AND (b.oid IN (SELECT w.oid FROM wanted w) OR has_table_privilege(b.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE'))
