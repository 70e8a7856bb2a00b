-- What others have written and a session of the mover would run with the mover's rights: in
-- queries over a side's tables, in rows that it writes there, in what it creates. $1:
-- schemas, $2: tables, $3: roles of which somebody has said that they are trusted, as
-- number:name, $4: names of functions of the server, or of extensions, that do no harm although
-- they are not IMMUTABLE, $5: of triggers, $6, $7: what texts name that are read anew each
-- time, by schema and name, without one: operators, $8: the column of each table whose text
-- is read so, too, if it is generated. Whose code it is, what of it is run, what
-- calls it, and how many others do; after these, with nothing that is run: a role that is no
-- superuser and owns a table, where the mover is one.
--
-- Of functions the owner counts, who can change them at any time; of an expression that is
-- made of the server's own functions, or of an extension's, whoever owns the table or domain
-- that has it: some run what a text says, or do what he may not. References to what came
-- with initdb are not in pg_depend, so for these the expressions themselves are read.
-- Catalogs that differ between versions are read as jsonb.
WITH RECURSIVE trusted AS (
    -- Who has come to a name later is not who was trusted by it.
    SELECT r.oid FROM pg_roles r
     WHERE r.rolsuper OR r.rolname = current_user OR format('%s:%s', r.oid, r.rolname) = ANY ($3::text[])
), wanted AS (
    SELECT c.oid
      FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
), tree AS (
    -- Whether rows reference each other is asked of both ends of a foreign key.
    SELECT l.oid, l.relowner, l.oid::regclass::text AS name
      FROM pg_class l
     WHERE l.oid IN (WITH RECURSIVE member AS (
                         SELECT w.oid FROM wanted w UNION SELECT p.relid FROM wanted w, pg_partition_tree(w.oid) p
                     ), bound AS (
                         SELECT m.oid FROM member m
                         UNION SELECT f.conrelid FROM member m JOIN pg_constraint f ON f.confrelid = m.oid AND f.contype = 'f'
                         UNION SELECT f.confrelid FROM member m JOIN pg_constraint f ON f.conrelid = m.oid AND f.contype = 'f'
                     ), heir AS (
                         -- Partitions, and whatever else inherits: a query over the parent reads it.
                         SELECT b.oid FROM bound b
                         UNION SELECT i.inhrelid FROM heir h JOIN pg_inherits i ON i.inhparent = h.oid
                     )
                     SELECT h.oid FROM heir h)
), above AS (
    -- What is written to a partition has to be what each table above it lets there be in it.
    SELECT l.oid, l.relowner, l.oid::regclass::text AS name
      FROM pg_class l
     WHERE l.oid IN (SELECT p.relid FROM tree t, pg_partition_ancestors(t.oid) p)
       AND l.oid NOT IN (SELECT t.oid FROM tree t)
), caller (what, author, classid, objid, expression) AS (
    SELECT t.name, t.relowner, 'pg_class'::regclass::oid, t.oid, p.partexprs::text
      FROM (SELECT * FROM tree UNION ALL SELECT * FROM above) t LEFT JOIN pg_partitioned_table p ON p.partrelid = t.oid
    UNION ALL
    SELECT format('%s: constraint %I', t.name, k.conname), t.relowner, 'pg_constraint'::regclass, k.oid, k.conbin::text
      FROM tree t JOIN pg_constraint k ON k.conrelid = t.oid
    UNION ALL
    SELECT format('%s: index %s', t.name, i.indexrelid::regclass), t.relowner, 'pg_class'::regclass, i.indexrelid,
           concat(i.indexprs::text, i.indpred::text)
      FROM tree t JOIN pg_index i ON i.indrelid = t.oid
    UNION ALL
    SELECT format('%s: column %I', t.name, a.attname), t.relowner, 'pg_attrdef'::regclass, d.oid, d.adbin::text
      FROM tree t JOIN pg_attrdef d ON d.adrelid = t.oid
      JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    UNION ALL
    -- Planning a query reads them.
    SELECT format('%s: statistics %I', t.name, s.stxname), t.relowner, 'pg_statistic_ext'::regclass, s.oid,
           to_jsonb(s) ->> 'stxexprs'
      FROM tree t JOIN pg_statistic_ext s ON s.stxrelid = t.oid
    UNION ALL
    SELECT format('%s: rule %I', t.name, r.rulename), t.relowner, 'pg_rewrite'::regclass, r.oid,
           concat(r.ev_qual::text, r.ev_action::text)
      FROM tree t JOIN pg_rewrite r ON r.ev_class = t.oid
    UNION ALL
    -- The others do not fire in a replica's session, and no other writes to these tables.
    SELECT format('%s: trigger %I', t.name, g.tgname), t.relowner, 'pg_trigger'::regclass, g.oid, g.tgqual::text
      FROM tree t JOIN pg_trigger g ON g.tgrelid = t.oid
     WHERE g.tgenabled IN ('A', 'R')
       -- What is in the agent's schema is the mover's: that was looked at when the session began.
       AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = g.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
    UNION ALL
    SELECT format('event trigger %I', e.evtname), NULL, 'pg_event_trigger'::regclass, e.oid, NULL
      FROM pg_event_trigger e WHERE e.evtenabled <> 'D'
), word (what, nsp, name) AS (
    SELECT 'computed columns', w.nsp, w.name FROM unnest($6::name[], $7::name[]) AS w (nsp, name)
    UNION
    -- What the server writes of a column is what the column is made of, by its names.
    SELECT format('%s: column %I', t.name, g.shard_by), n.nspname, g.name
      FROM (
{generated}
      ) AS g (relid, shard_by, nsp, name)
      JOIN tree t ON t.oid = g.relid JOIN pg_namespace n ON n.oid = g.nsp
), named (what, name, schema, owner, acl, classid, objid) AS (
    -- Whichever of those that share a name a text will mean.
    SELECT w.what, w.name, n.nspname, n.nspowner, n.nspacl, o.classid, o.oid
      FROM word w
      JOIN pg_namespace n ON n.nspname = w.nsp AND n.nspname <> 'pg_catalog'
      LEFT JOIN LATERAL (
        SELECT 'pg_proc'::regclass::oid, p.oid FROM pg_proc p WHERE p.proname = w.name AND p.pronamespace = n.oid
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid FROM pg_type t WHERE t.typname = w.name AND t.typnamespace = n.oid
        UNION ALL
        SELECT 'pg_operator'::regclass, o.oid FROM pg_operator o WHERE w.name IS NULL AND o.oprnamespace = n.oid
     ) AS o (classid, oid) ON true
), whole (castfunc, relid) AS (
{whole}
), direct AS (
    SELECT n.what, n.classid, n.objid FROM named n WHERE n.objid IS NOT NULL
    UNION ALL
    SELECT format('%s: a cast of its rows', t.name), 'pg_proc'::regclass, w.castfunc FROM whole w JOIN tree t ON t.oid = w.relid
    UNION ALL
    -- Of the server's own operator classes nothing is in pg_depend, nor of its types.
    SELECT c.what, 'pg_opclass'::regclass, k.opclass
      FROM caller c JOIN pg_index i ON c.classid = 'pg_class'::regclass AND i.indexrelid = c.objid
     CROSS JOIN unnest(i.indclass::oid[]) AS k (opclass)
    UNION ALL
    SELECT format('%s: column %I', t.name, a.attname), 'pg_opclass'::regclass, o.oid
      FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_opclass o ON o.opcintype = a.atttypid AND o.oid >= 16384 AND o.opcdefault
    UNION ALL
    -- Values of the server's own types are compared by these, also within arrays and rows.
    SELECT format('values of type %s: operator class %I', o.opcintype::regtype, o.opcname), 'pg_opclass'::regclass, o.oid
      FROM pg_opclass o WHERE o.oid >= 16384 AND o.opcdefault AND o.opcintype < 16384
       AND o.opcintype NOT IN (SELECT a.atttypid FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0)
    UNION ALL
    -- An array without elements names its type, of which nothing is in pg_depend; so do queries over JSON.
    SELECT c.what, 'pg_type'::regclass, f.found[1]::oid
      FROM caller c CROSS JOIN regexp_matches(c.expression, ':(?:array_typeid|element_typeid|typid) (\d+)', 'g') AS f (found)
     WHERE f.found[1]::oid >= 16384
    UNION ALL
    SELECT c.what, d.refclassid AS classid, d.refobjid AS objid
      FROM caller c JOIN pg_depend d ON d.classid = c.classid AND d.objid = c.objid
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_type'::regclass)
), reached (start_class, start_id, classid, objid) AS (
    -- Each only once, however many partitions call it.
    SELECT DISTINCT classid, objid, classid, objid FROM direct
    UNION
    SELECT r.start_class, r.start_id, next.classid, next.objid
      FROM reached r
     CROSS JOIN LATERAL (
{reaches}
     ) AS next (classid, objid)
), expression (what, author, tree) AS (
    SELECT c.what, c.author, c.expression FROM caller c WHERE c.author NOT IN (SELECT oid FROM trusted)
    UNION
    SELECT format('constraint %I of domain %s', k.conname, t.oid::regtype), t.typowner, k.conbin::text
      FROM reached r JOIN pg_constraint k ON k.oid = r.objid JOIN pg_type t ON t.oid = k.contypid
     WHERE r.classid = 'pg_constraint'::regclass AND t.typowner NOT IN (SELECT oid FROM trusted)
    UNION
    SELECT format('default of domain %s', t.oid::regtype), t.typowner, t.typdefaultbin::text
      FROM reached r JOIN pg_type t ON t.oid = r.objid
     WHERE r.classid = 'pg_type'::regclass AND t.typdefaultbin IS NOT NULL AND t.typowner NOT IN (SELECT oid FROM trusted)
), draws (what, author, classid, objid) AS (
    SELECT c.what, c.author, c.classid, c.objid FROM caller c
    UNION
    SELECT format('domain %s', t.oid::regtype), t.typowner, r.classid, r.objid
      FROM reached r LEFT JOIN pg_constraint k ON r.classid = 'pg_constraint'::regclass AND k.oid = r.objid
      JOIN pg_type t ON t.oid = CASE r.classid WHEN 'pg_type'::regclass THEN r.objid ELSE k.contypid END
     WHERE r.classid IN ('pg_type'::regclass, 'pg_constraint'::regclass)
), lent (author, proc, what) AS (
    -- What a role has made of functions that it does not own, and the planner may call in the
    -- place of what an expression says. Few are left before all that leads to them is looked for.
    SELECT o.oprowner, o.oprcode::oid, d.what
      FROM reached r
      JOIN pg_operator o ON r.classid = 'pg_operator'::regclass AND o.oid = r.objid
                            AND o.oprowner NOT IN (SELECT oid FROM trusted)
      JOIN direct d ON d.classid = r.start_class AND d.objid = r.start_id
    UNION
    SELECT t.typowner, x.proc, d.what
      FROM reached r
      JOIN pg_type t ON r.classid = 'pg_type'::regclass AND t.oid = r.objid
                        AND t.typowner NOT IN (SELECT oid FROM trusted)
     CROSS JOIN LATERAL (
        SELECT c.castfunc::oid FROM pg_cast c WHERE t.oid IN (c.castsource, c.casttarget) AND c.oid >= 16384
        UNION ALL SELECT g.rngsubdiff::oid FROM pg_range g WHERE g.rngtypid = t.oid) AS x (proc)
      JOIN direct d ON d.classid = r.start_class AND d.objid = r.start_id
    UNION
    SELECT t.relowner, w.castfunc, format('%s: a cast of its rows', t.name) FROM whole w JOIN tree t ON t.oid = w.relid
     WHERE t.relowner NOT IN (SELECT oid FROM trusted)
), run (owner, code, what) AS (
    SELECT p.proowner, format('function %s, which belongs to role %%s', replace(p.oid::regprocedure::text, '%', '%%')), d.what
      FROM reached r JOIN pg_proc p ON p.oid = r.objid
      JOIN direct d ON d.classid = r.start_class AND d.objid = r.start_id
     WHERE r.classid = 'pg_proc'::regclass AND p.proowner NOT IN (SELECT oid FROM trusted)
    UNION
    SELECT e.author, format('function %s, with arguments written by role %%s', replace(p.oid::regprocedure::text, '%', '%%')), e.what
      FROM (SELECT x.what, x.author, x.tree, found[1]::oid
              FROM expression x CROSS JOIN regexp_matches(x.tree, ':(?:op)?funcid (\d+)', 'g') found
            UNION ALL SELECT l.what, l.author, '', l.proc FROM lent l
           ) AS e (what, author, tree, proc)
      JOIN pg_proc p ON p.oid = e.proc AND p.proowner IN (SELECT oid FROM trusted)
     WHERE NOT has_function_privilege(e.author, p.oid, 'EXECUTE')
        OR p.provolatile <> 'i' AND p.proname !~ $4
           AND (p.oid < 16384 OR EXISTS (SELECT 1 FROM pg_depend m WHERE m.classid = 'pg_proc'::regclass AND m.objid = p.oid
                                            AND m.deptype = 'e'))
        -- It reads the key of whatever table its number names, and computes what is in that.
        OR p.oid = to_regprocedure('pg_catalog.satisfies_hash_partition(oid,int4,int4,"any")')
        -- Of a sequence that it does not name, which the server finds by a text or a number.
        OR p.oid = 'pg_catalog.nextval(regclass)'::regprocedure
           AND regexp_replace(e.tree, format(':funcid %s [^{}]*\{CONST :consttype %s ', p.oid::oid, 'regclass'::regtype::oid), '', 'g')
               ~ format(':funcid %s ', p.oid::oid)
    UNION
    SELECT c.author, format('sequence %s, which role %%s cannot use', replace(s.oid::regclass::text, '%', '%%')), c.what
      FROM draws c JOIN pg_depend d ON d.classid = c.classid AND d.objid = c.objid AND d.refclassid = 'pg_class'::regclass
      JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
     WHERE c.author NOT IN (SELECT oid FROM trusted) AND NOT has_sequence_privilege(c.author, s.oid, 'USAGE, UPDATE')
    UNION
    -- They go by texts that whoever makes the trigger writes.
    SELECT c.author, format('function %s, with arguments written by role %%s', replace(p.oid::regprocedure::text, '%', '%%')), c.what
      FROM caller c JOIN pg_trigger g ON c.classid = 'pg_trigger'::regclass AND g.oid = c.objid
      JOIN pg_proc p ON p.oid = g.tgfoid AND p.proname !~ $5
     WHERE c.author NOT IN (SELECT oid FROM trusted)
       AND (p.oid < 16384 OR EXISTS (SELECT 1 FROM pg_depend m WHERE m.classid = 'pg_proc'::regclass AND m.objid = p.oid
                                        AND m.deptype = 'e'))
    UNION
    -- It may write to whatever tables, with triggers of their own. Others are not followed in
    -- a replica's session; that of a view makes it what it is.
    SELECT c.author, 'a rule, which belongs to role %s', c.what
      FROM caller c JOIN pg_rewrite w ON c.classid = 'pg_rewrite'::regclass AND w.oid = c.objid
     WHERE c.author NOT IN (SELECT oid FROM trusted) AND (w.ev_enabled IN ('A', 'R') OR w.ev_type = '1')
    UNION
    -- What a function reads whose body is standard SQL: a view is code, and a table that is written to has triggers.
    SELECT l.relowner, format('%s, which belongs to role %%s', replace(l.oid::regclass::text, '%', '%%')), d.what
      FROM reached r
      JOIN pg_depend e ON r.classid = 'pg_proc'::regclass AND e.classid = r.classid AND e.objid = r.objid AND e.refclassid = 'pg_class'::regclass
      JOIN pg_class l ON l.oid = e.refobjid AND l.relkind <> 'S' AND l.relowner NOT IN (SELECT oid FROM trusted)
      JOIN direct d ON d.classid = r.start_class AND d.objid = r.start_id
    UNION
    -- Whom a query asks that reads it, its owner says.
    SELECT t.relowner, 'a foreign table, which belongs to role %s', t.name
      FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind = 'f' WHERE t.relowner NOT IN (SELECT oid FROM trusted)
    UNION
    -- Whatever fits better than what is there now may come into it.
    SELECT m.role, format('schema %s, where %s can create objects', replace(quote_ident(n.schema), '%', '%%'),
                          CASE m.role WHEN 0 THEN 'everybody' ELSE 'role %s' END), n.what
      FROM named n
     CROSS JOIN LATERAL (SELECT n.owner UNION SELECT a.grantee FROM aclexplode(n.acl) a WHERE a.privilege_type = 'CREATE') AS m (role)
     WHERE m.role NOT IN (SELECT oid FROM trusted)
       -- Its member is who owns the database.
       AND NOT (m.role::regrole::text = 'pg_database_owner'
                AND (SELECT b.datdba FROM pg_database b WHERE b.datname = current_database()) IN (SELECT oid FROM trusted))
)
SELECT coalesce(o.rolname, 'PUBLIC'), format(r.code, r.owner::regrole), min(r.what), count(DISTINCT r.what) - 1
  FROM run r LEFT JOIN pg_roles o ON o.oid = r.owner GROUP BY o.rolname, r.owner, r.code
UNION ALL
SELECT t.relowner::regrole::text, NULL, min(t.name), count(*) - 1
  FROM tree t
 WHERE t.relowner NOT IN (SELECT oid FROM pg_roles WHERE rolsuper)
   AND current_setting('is_superuser')::boolean
 GROUP BY t.relowner
 ORDER BY 2 NULLS LAST, 1
