-- Sequences by their names, or by their numbers. $1: schemas, $2: names, $3: numbers. Number, schema, name, owner,
-- whether it begins anew at its end.
SELECT s.oid, n.nspname, s.relname, o.rolname, q.seqcycle
  FROM (SELECT c.oid FROM unnest($1::name[]) w (nsp)
          JOIN pg_namespace n ON n.nspname = w.nsp CROSS JOIN unnest($2::name[]) v (rel)
          JOIN pg_class c ON c.relname = v.rel AND c.relnamespace = n.oid
        UNION SELECT unnest($3::oid[])) w (oid)
  JOIN pg_class s ON s.oid = w.oid AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_roles o ON o.oid = s.relowner
  JOIN pg_sequence q ON q.seqrelid = s.oid
 ORDER BY 2, 3
