-- Whether a relation is a table, with all that a query over it reads (of a view or a foreign table somebody else says what is run),
-- and belongs to roles that may have the mover look at it: those that own one of some tables, the mover, superusers, trusted ones. $1:
-- its name, qualified and quoted, $2: schemas, $3: the tables, $4: roles that are trusted, as number:name. Then who else it belongs to.
WITH RECURSIVE read (oid) AS (
    SELECT to_regclass($1::text)::oid
    UNION SELECT i.inhrelid FROM read r JOIN pg_inherits i ON i.inhparent = r.oid
), known (oid) AS (
    SELECT c.relowner FROM unnest($2::text[], $3::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
    UNION
    SELECT r.oid FROM pg_roles r WHERE r.rolsuper OR r.rolname = current_user OR format('%s:%s', r.oid, r.rolname) = ANY ($4::text[])
)
SELECT bool_and(c.relkind IN ('r', 'p')), min(pg_get_userbyid(c.relowner)) FILTER (WHERE c.relowner NOT IN (SELECT k.oid FROM known k)),
       sum(pg_relation_size(c.oid)) = 0
  FROM read r JOIN pg_class c ON c.oid = r.oid
