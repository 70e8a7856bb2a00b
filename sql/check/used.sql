-- Rights that roles which use a side's tables have on what functions over them need: EXECUTE on the functions, the sequences that they
-- name, the schemas of both; and CREATE in the tables' schemas. $1: schemas, $2: tables, $3, $4: functions in other schemas, by schema and
-- name, $5: names in the texts of all of them. Role ('public': everybody), right, what it is of. Not the owner's own.
WITH RECURSIVE wanted AS (
    SELECT c.oid, c.relkind, c.relacl, c.relowner, c.relnamespace
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), own (oid) AS MATERIALIZED (
    SELECT DISTINCT w.relnamespace FROM wanted w
), down (oid) AS (
    SELECT r.oid FROM (SELECT DISTINCT x.grantee FROM wanted w CROSS JOIN aclexplode(coalesce(w.relacl, acldefault('r', w.relowner))) x) g
      JOIN pg_roles r ON r.oid = g.grantee
    UNION
    SELECT m.member FROM down d JOIN pg_auth_members m ON m.roleid = d.oid
), up (oid) AS (
    SELECT d.oid FROM down d
    UNION
    SELECT m.roleid FROM up u JOIN pg_auth_members m ON m.member = u.oid
), role (oid, name) AS MATERIALIZED (
    SELECT 0::oid, 'public'::name
    UNION ALL
    SELECT r.oid, r.rolname FROM up u JOIN pg_roles r ON r.oid = u.oid WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.rolname !~ '^pg_'
), func AS MATERIALIZED (
    SELECT p.oid, p.proowner, p.proacl, p.pronamespace
      FROM (SELECT f.oid FROM own o JOIN pg_proc f ON f.pronamespace = o.oid
            UNION
            SELECT f.oid FROM unnest($3::name[], $4::name[]) AS a (nsp, name) JOIN pg_namespace n ON n.nspname = a.nsp
              JOIN pg_proc f ON f.proname = a.name AND f.pronamespace = n.oid) k
      JOIN pg_proc p ON p.oid = k.oid
     WHERE NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype IN ('e', 'i'))
), seq AS MATERIALIZED (
    SELECT s.oid, s.relowner, s.relacl, s.relnamespace
      FROM unnest($5::name[]) AS w (name) JOIN pg_class s ON s.relname = w.name AND s.relkind = 'S' JOIN pg_namespace n ON n.oid = s.relnamespace
     WHERE s.relnamespace IN (SELECT o.oid FROM own o) OR n.nspname = ANY ($5::name[])
), place (oid) AS MATERIALIZED (
    SELECT w.relnamespace FROM wanted w
    UNION
    SELECT c.relnamespace FROM wanted w CROSS JOIN LATERAL pg_partition_tree(w.oid) t JOIN pg_class c ON c.oid = t.relid WHERE w.relkind = 'p'
), had AS (
    SELECT x.grantee, 'EXECUTE of function' AS privilege, f.oid::regprocedure::text AS of
      FROM func f JOIN pg_proc p ON p.oid = f.oid CROSS JOIN aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) x
     WHERE x.grantee <> f.proowner AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
    UNION
    SELECT x.grantee, 'nextval of sequence', s.oid::regclass::text
      FROM seq s CROSS JOIN aclexplode(s.relacl) x WHERE x.grantee <> s.relowner AND x.privilege_type IN ('USAGE', 'UPDATE')
    UNION
    SELECT x.grantee, 'USAGE of schema', quote_ident(n.nspname)
      FROM (SELECT f.pronamespace FROM func f UNION SELECT s.relnamespace FROM seq s) k (oid) JOIN pg_namespace n ON n.oid = k.oid
     CROSS JOIN aclexplode(n.nspacl) x
     WHERE x.grantee <> n.nspowner AND x.privilege_type = 'USAGE' AND n.oid NOT IN (SELECT o.oid FROM own o)
    UNION
    -- Before PostgreSQL 15 everybody may create in that one, and nobody has said so.
    SELECT x.grantee, 'CREATE in schema', quote_ident(n.nspname)
      FROM place k JOIN pg_namespace n ON n.oid = k.oid CROSS JOIN aclexplode(n.nspacl) x
     WHERE x.grantee <> n.nspowner AND x.privilege_type = 'CREATE' AND NOT (n.nspname = 'public' AND x.grantee = 0)
)
SELECT r.name, h.privilege, h.of FROM had h JOIN role r ON r.oid = h.grantee ORDER BY 2, 3, 1
