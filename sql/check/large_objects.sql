-- Which columns of the tables name large objects by a trigger of the extension lo, by the table's position, and whether the
-- database has large objects. $1: schemas, $2: tables. The second row of such a database has no position.
SELECT w.ord - 1, split_part(encode(t.tgargs, 'escape'), '\000', 1), NULL
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
  JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
  JOIN pg_proc p ON p.oid = t.tgfoid
  JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'c'
 WHERE p.prosrc = 'lo_manage'
UNION ALL
SELECT NULL, NULL, count(*) FROM (SELECT FROM pg_largeobject_metadata LIMIT 1) m
