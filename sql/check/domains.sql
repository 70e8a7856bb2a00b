-- CHECK constraints of domains that old values need not keep to: ADD CONSTRAINT .. NOT VALID.
-- $1: schemas, $2: tables. Position of the table, column, domain, constraint.
WITH RECURSIVE part (position, attname, oid) AS (
    SELECT w.ord - 1, a.attname, a.atttypid
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT p.position, p.attname, child.oid
      FROM part p JOIN pg_type t ON t.oid = p.oid
     CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                   WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r
                   WHERE r.rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
     ) AS child (oid)
     WHERE child.oid <> 0
)
SELECT p.position, p.attname, p.oid::regtype, k.conname
  FROM part p JOIN pg_constraint k ON k.contypid = p.oid
 WHERE k.contype = 'c' AND NOT k.convalidated
 ORDER BY 1, 2, 3, 4
