-- Which roles may read and write a side's tables. $1: schemas, $2: tables. Position of the table, role ('public': everybody), right;
-- its column, or the column whose sequence it is about (NULL: the table).
WITH wanted AS (
    SELECT w.ord - 1 AS position, c.oid, c.relowner, c.relacl, n.nspowner, n.nspacl
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), given AS (
    SELECT w.position, x.grantee, x.privilege_type, NULL::name AS "column"
      FROM wanted w CROSS JOIN aclexplode(coalesce(w.relacl, acldefault('r', w.relowner))) x
    UNION
    SELECT w.position, x.grantee, x.privilege_type, a.attname
      FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND a.attacl IS NOT NULL AND NOT a.attisdropped
     CROSS JOIN aclexplode(a.attacl) x
    UNION
    -- What a default draws from. An identity needs no right.
    SELECT w.position, x.grantee, 'nextval', a.attname
      FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.atthasdef JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
      JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
      JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
     CROSS JOIN aclexplode(coalesce(s.relacl, acldefault('s', s.relowner))) x
     WHERE x.privilege_type IN ('USAGE', 'UPDATE')
    UNION
    -- Of who has a right on the table.
    SELECT w.position, x.grantee, 'schema USAGE', NULL
      FROM wanted w CROSS JOIN aclexplode(coalesce(w.nspacl, acldefault('n', w.nspowner))) x
     WHERE x.privilege_type = 'USAGE'
       AND (x.grantee = 0 OR EXISTS (SELECT FROM aclexplode(coalesce(w.relacl, acldefault('r', w.relowner))) t WHERE t.grantee = x.grantee))
)
SELECT g.position, CASE WHEN g.grantee = 0 THEN 'public' ELSE r.rolname END, g.privilege_type, g."column"
  FROM given g LEFT JOIN pg_roles r ON r.oid = g.grantee
 WHERE g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'nextval', 'schema USAGE')
   -- Who passes all checks passes them there, or is somebody else.
   AND (g.grantee = 0 OR NOT r.rolsuper)
 ORDER BY 1, 2, 3, 4
