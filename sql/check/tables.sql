-- What the tables of one side must be. $1: schemas, $2: tables, $3: shard-by columns,
-- $4: whether this is the target.
WITH wanted AS (
    SELECT format('%I.%I', w.nsp, w.rel) AS name, w.shard_by, c.oid, c.relkind, c.relowner, c.relpersistence
      FROM unnest($1::text[], $2::text[], $3::text[]) AS w (nsp, rel, shard_by)
      LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace)
             ON n.nspname = w.nsp AND c.relname = w.rel
), tree AS (
    -- The table, its partitions and those between: statements may name each of them.
    SELECT w.name, w.oid AS root, w.shard_by, c.oid, c.relkind, c.relpersistence, c.relowner
      FROM wanted w CROSS JOIN LATERAL (SELECT w.oid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) m
      JOIN pg_class c ON c.oid = m.oid
)
SELECT 'table exists', oid IS NOT NULL AND relkind IN ('r', 'p'),
       name || CASE relkind WHEN 'v' THEN ' is a view' WHEN 'm' THEN ' is a materialized view' WHEN 'f' THEN ' is a foreign table'
                            WHEN 'S' THEN ' is a sequence' ELSE '' END,
       CASE WHEN $4::boolean THEN 'shard_schema_copy() creates it as the source has it. Or remove it from the keyspace and this plan with shard_table_drop(). If its rows stay, add it again with policy => ''global''.'
            ELSE 'Create it, or remove it from the keyspace with shard_table_drop(), and so from a plan that has not begun.' END
  FROM wanted
UNION ALL
SELECT 'right to own', pg_has_role(relowner, 'USAGE'), format('%s belongs to %s', name, relowner::regrole),
       format('GRANT %s TO %I', relowner::regrole, current_user)
  FROM wanted WHERE oid IS NOT NULL
UNION ALL
SELECT 'right to own', false, format('%s belongs to %s', oid::regclass, relowner::regrole),
       format('GRANT %s TO %I', relowner::regrole, current_user)
  FROM tree WHERE oid <> root AND NOT pg_has_role(relowner, 'USAGE')
UNION ALL
-- An owner can lose them, too.
SELECT 'right to write', false, format('%s: %I cannot %s', oid::regclass, current_user, p.wanted),
       format('GRANT %s ON %s TO %I', p.wanted, oid::regclass, current_user)
  FROM tree t
 CROSS JOIN LATERAL (SELECT string_agg(w.privilege, ', ')
                       FROM unnest(ARRAY['SELECT', 'UPDATE', 'DELETE', 'TRIGGER', CASE WHEN $4::boolean THEN 'INSERT' END]) w (privilege)
                      WHERE NOT has_table_privilege(t.oid, w.privilege)) p (wanted)
 WHERE p.wanted IS NOT NULL AND pg_has_role(t.relowner, 'USAGE')
UNION ALL
SELECT DISTINCT 'right to write', false, format('%I cannot use schema %s', current_user, c.relnamespace::regnamespace),
       format('GRANT USAGE ON SCHEMA %s TO %I', c.relnamespace::regnamespace, current_user)
  FROM tree t JOIN pg_class c ON c.oid = t.oid WHERE NOT has_schema_privilege(c.relnamespace, 'USAGE')
UNION ALL
SELECT 'shard-by column', EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = w.oid AND a.attname = w.shard_by
                                     AND a.attnum > 0 AND NOT a.attisdropped),
       format('%s.%I', name, shard_by), 'To name the right column, call shard_split_rollback() for this plan, shard_table_drop(), shard_table_add(), then shard_split_start_dual_write().'
  FROM wanted w WHERE oid IS NOT NULL
UNION ALL
SELECT 'primary key', EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = w.oid AND i.indisprimary), name,
       'Add a primary key, which is needed to find its rows.'
  FROM wanted w WHERE oid IS NOT NULL
UNION ALL
SELECT 'ordinary tables', false, format('%s: %s is unlogged, temporary or foreign', name, oid::regclass),
       'Only ordinary, logged tables can move.'
  FROM tree WHERE relpersistence <> 'p' OR relkind NOT IN ('r', 'p')
UNION ALL
SELECT 'inheritance', false, format('%s has children by inheritance', name), 'Use partitions, or move the children''s rows into the table.'
  FROM wanted w
 WHERE relkind = 'r' AND EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = w.oid)
UNION ALL
SELECT 'rules', false, format('%s has rule %I', r.ev_class::regclass, r.rulename), 'A rule changes what a write does. Drop it.'
  FROM tree t JOIN pg_rewrite r ON r.ev_class = t.oid
UNION ALL
SELECT 'triggers of the target', false, format('%s: trigger %I is enabled ALWAYS or REPLICA', l.oid::regclass, t.tgname),
       'It would fire for every copied row. ALTER TABLE .. ENABLE TRIGGER makes it an ordinary one.'
  FROM tree l JOIN pg_trigger t ON t.tgrelid = l.oid
 -- Before PostgreSQL 15 a clone of a partitioned table's trigger is an internal one; those
 -- of foreign keys name the other table.
 WHERE $4::boolean AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND t.tgconstrrelid = 0)
   AND t.tgenabled IN ('A', 'R')
   -- By its name anybody's could be the agent's.
   AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
UNION ALL
-- Finish deletes in a replica's session. What keeps a row there keeps it from its end.
SELECT 'triggers of the source', t.tgtype & 3 <> 3,
       format('%s: trigger %I is enabled ALWAYS or REPLICA, and fires for the rows that finish deletes', l.oid::regclass, t.tgname),
       'It may keep a row, or change others. ALTER TABLE .. ENABLE TRIGGER makes it an ordinary one.'
  FROM tree l JOIN pg_trigger t ON t.tgrelid = l.oid
 WHERE NOT $4::boolean AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND t.tgconstrrelid = 0)
   AND t.tgenabled IN ('A', 'R') AND t.tgtype & 8 <> 0
   -- By its name anybody's could be the agent's.
   AND NOT EXISTS (SELECT 1 FROM pg_proc f WHERE f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
UNION ALL
-- In a replica's session the triggers of such constraints do not fire: what another key
-- has already would be there twice.
SELECT 'deferrable constraints of the target', false, format('%s: %I is not checked for copied rows', w.name, k.conname),
       format('Make it NOT DEFERRABLE, or add column "%s" to it.', w.shard_by)
  FROM tree w JOIN pg_constraint k ON k.conrelid = w.oid
 WHERE $4::boolean AND k.contype IN ('p', 'u', 'x') AND k.condeferrable AND k.conparentid = 0
   AND NOT EXISTS (SELECT 1 FROM unnest(k.conkey, k.conexclop) AS c (attnum, operator)
                     JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.attnum
                     LEFT JOIN pg_operator o ON o.oid = c.operator
                    WHERE a.attname = w.shard_by AND coalesce(o.oprname, '=') = '=')
UNION ALL
SELECT 'subscriptions of the target', false, format('%s: a subscription writes to it', w.oid::regclass),
       'Rows that finish deletes on the source would be deleted here as well, or copied rows arrive twice. Drop the subscription, or remove the table from its publication.'
  FROM tree w
 WHERE $4::boolean AND EXISTS (SELECT 1 FROM pg_subscription_rel s WHERE s.srrelid = w.oid)
UNION ALL
SELECT 'subscriptions of the source', false, format('%s: a subscription writes to it', w.oid::regclass),
       'After the cutover it would stop at the first change of a moved key, also for keys that stay. Remove the moving keys from the publication, or drop the subscription.'
  FROM tree w
 WHERE NOT $4::boolean AND EXISTS (SELECT 1 FROM pg_subscription_rel s WHERE s.srrelid = w.oid)
UNION ALL
SELECT 'row-level security', false, format('%s: its policies apply to %I', w.oid::regclass, current_user),
       'The mover must see every row. Make it a member of the owner without FORCE, or give it BYPASSRLS.'
  FROM tree w WHERE row_security_active(w.oid)
UNION ALL
SELECT 'foreign keys from other tables', false,
       format('%s references %s', f.conrelid::regclass, w.oid::regclass),
       'A split deletes rows without checking what references them: on the source at its end, on the target when it copies again. Add the table to the keyspace with shard_table_add(), which needs the shard-by column, or drop the foreign key.'
  FROM tree w JOIN pg_constraint f ON f.confrelid = w.oid AND f.contype = 'f' AND f.conparentid = 0
 WHERE NOT EXISTS (SELECT 1 FROM tree l WHERE l.oid = f.conrelid)
UNION ALL
SELECT 'publications', true, format('%s is in publication %I: its subscribers see a copy as inserts and finish as deletes', w.oid::regclass, p.pubname),
       'Inform the readers of the publication.'
  FROM tree w JOIN pg_class c ON c.oid = w.oid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
