-- What hides a side's tables from roles that use them: search_path looks in the schema that is called as the role before others. $1: schemas,
-- $2: tables. Position of the table, the relation.
SELECT w.ord - 1, format('%s %I.%I', CASE h.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'table' END, r.rolname, h.relname)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel AND c.relkind IN ('r', 'p')
  JOIN pg_class h ON h.relname = w.rel AND h.oid <> c.oid AND h.relkind IN ('r', 'p', 'v', 'm', 'f')
  JOIN pg_namespace o ON o.oid = h.relnamespace JOIN pg_roles r ON r.rolname = o.nspname
 WHERE has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE') AND NOT r.rolsuper
 ORDER BY 1, 2
