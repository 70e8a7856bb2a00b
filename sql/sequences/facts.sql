-- What is known of sequences that a table's clients draw from. $1: the table of each, or NULL, $2: its number, $3: a role of
-- this server that is to be allowed to set it where there is no table, or NULL. In the order that was asked in: number, qualified
-- name, schema, name, whether it begins anew at its end, who may not set it, whether the mover may not read it, its owner, where the mover is none.
SELECT s.oid, format('%I.%I', n.nspname, s.relname), n.nspname, s.relname, q.seqcycle,
       CASE WHEN NOT pg_has_role(r.oid, s.relowner, 'USAGE') AND NOT has_sequence_privilege(r.oid, s.oid, 'UPDATE')
            THEN r.oid::regrole END,
       NOT has_schema_privilege(n.oid, 'USAGE') OR NOT has_sequence_privilege(s.oid, 'SELECT'),
       CASE WHEN NOT pg_has_role(s.relowner, 'USAGE') THEN s.relowner::regrole END
  FROM unnest($1::oid[], $2::oid[], $3::name[]) WITH ORDINALITY w (relation, sequence, role, position)
  JOIN pg_class s ON s.oid = w.sequence AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_sequence q ON q.seqrelid = s.oid
  LEFT JOIN pg_class t ON t.oid = w.relation
  LEFT JOIN pg_roles r ON r.oid = t.relowner OR t.oid IS NULL AND r.rolname = w.role
 ORDER BY w.position
