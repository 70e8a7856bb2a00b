-- What queries over some tables read: these, and the other ends of their foreign keys. $1: schemas, $2: tables. JSON: the
-- names, quoted, of those that can be locked because they may be read; the numbers and names of these and of all that is
-- locked with them; and which of the tables may not be read, by their positions. What is no table is refused by its kind.
WITH RECURSIVE wanted AS (
    SELECT c.oid, w.ord - 1 AS position
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), member AS (
    SELECT w.oid FROM wanted w UNION SELECT p.relid FROM wanted w, pg_partition_tree(w.oid) p
), bound AS (
    SELECT w.oid FROM wanted w
    UNION SELECT f.conrelid FROM member m JOIN pg_constraint f ON f.confrelid = m.oid AND f.contype = 'f' AND f.conparentid = 0
    UNION SELECT f.confrelid FROM member m JOIN pg_constraint f ON f.conrelid = m.oid AND f.contype = 'f' AND f.conparentid = 0
), known AS (
    SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name,
           has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS may_read
      FROM bound b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p')
), heir AS (
    SELECT k.oid FROM known k WHERE k.may_read
    UNION SELECT i.inhrelid FROM heir h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT json_build_object(
    'names', (SELECT coalesce(json_agg(k.name ORDER BY k.name), '[]') FROM known k WHERE k.may_read),
    'held', (SELECT coalesce(json_object_agg(h.oid, format('%I.%I', n.nspname, c.relname) ORDER BY h.oid), '{}')
               FROM heir h JOIN pg_class c ON c.oid = h.oid JOIN pg_namespace n ON n.oid = c.relnamespace),
    'closed', (SELECT coalesce(json_agg(w.position ORDER BY w.position), '[]') FROM known k JOIN wanted w ON w.oid = k.oid WHERE NOT k.may_read))
