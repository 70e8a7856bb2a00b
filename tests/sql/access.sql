-- Who may call what, by level.
\set SHOW_CONTEXT never
CREATE EXTENSION shardmaster;
CREATE ROLE a_client; CREATE ROLE a_monitor; CREATE ROLE an_operator; CREATE ROLE an_admin;
SELECT shard_grant('a_client', 'client'), shard_grant('a_monitor', 'monitor'),
       shard_grant('an_operator', 'operator'), shard_grant('an_admin', 'admin');
-- Every routine that somebody may call by its name is in one level, but for these two.
SELECT p.proname, count(r.level) AS levels
  FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
  LEFT JOIN shardmaster.routine_levels() r ON r.routine = p.proname
 WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster')
   AND p.pronamespace <> 'shardmaster'::regnamespace
 GROUP BY p.oid, p.proname HAVING count(r.level) <> 1 ORDER BY 1;
SELECT routine AS no_routine FROM shardmaster.routine_levels()
 WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = routine);
-- Nobody else's names, and, but for what goes by who calls or needs no right, the owner's rights.
SELECT p.proname, p.proconfig
  FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
 WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster')
   AND p.pronamespace <> 'shardmaster'::regnamespace
   AND NOT (p.prosecdef AND p.proconfig = '{"search_path=pg_catalog, pg_temp"}')
 ORDER BY p.oid::regprocedure::text COLLATE "C";
-- Each role has what its level holds, and nothing else; nobody has a table.
CREATE VIEW rights AS
SELECT r.rolname, p.proname, has_function_privilege(r.rolname, p.oid, 'EXECUTE') AS has,
       p.proname = 'shard_for' OR p.oid::regprocedure IN (SELECT shardmaster.routines_of_level(r.level)) AS should
  FROM (VALUES ('a_client', 'client'), ('a_monitor', 'monitor'), ('an_operator', 'operator'), ('an_admin', 'admin')) r (rolname, level),
       pg_depend d JOIN pg_proc p ON p.oid = d.objid
 WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster');
SELECT rolname, count(DISTINCT proname) FILTER (WHERE has) AS routines FROM rights GROUP BY rolname ORDER BY 1;
SELECT rolname, proname FROM rights WHERE has <> should ORDER BY 1, 2;
SELECT r.rolname, c.oid::regclass AS relation
  FROM pg_class c, pg_roles r
 WHERE c.relnamespace = 'shardmaster'::regnamespace AND r.rolname IN ('a_client', 'a_monitor', 'an_operator', 'an_admin')
   AND c.relkind IN ('r', 'v', 'p') AND has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
-- What a call needs inside comes with it.
SET ROLE a_client;
SELECT shard_of('nobody') IS NULL AS routed;
SELECT * FROM shard_split_metrics(1);
RESET ROLE;
SET ROLE a_monitor;
SELECT count(*) FROM shard_split_metrics(NULL);
SELECT count(*) FROM shard_topology();
SELECT shard_assign('t', 'a');
RESET ROLE;
SET ROLE an_operator;
CALL shard_split_run(1);
SELECT shard_add('a');
SELECT shard_grant('a_client', 'admin');
RESET ROLE;
SELECT shard_add('there', 'dbname=shard_a user=mover') > 0 AS added;
SET ROLE an_admin;
SELECT shard_add('gpu', kind => 'gpu') > 0 AS added;
SELECT shard_add('b', 'host=b');
SELECT shard_trust_owner('gpu', 'app');
SELECT shard_trust_owner('nowhere', 'app');
-- Of the master's own database: only what is theirs, and nobody's rights are given away.
SELECT shard_add('here');
SELECT shard_add('inside', namespace => 'shardmaster');
RESET ROLE;
CREATE SCHEMA theirs AUTHORIZATION an_admin;
SET ROLE an_admin;
SELECT shard_add('here', namespace => 'theirs') > 0 AS added;
SELECT shard_trust_owner('here', 'an_admin');
-- Nor is a table of others in this database one whose rows he may move.
SELECT shard_table_add('public.anything', 'tenant');
SELECT shard_drop('here');
SELECT shard_trust_owner('there', '');
SELECT shard_trust_owner('there', NULL);
SELECT shard_trust_owner('there', 'Application Owner');
SELECT shard_trust_owner('there', 'owner');
SELECT shard_key, role FROM shard_trusted_owners();
-- A shard that is dropped takes along what was said of it.
SELECT shard_drop('there');
SELECT shard_key, role FROM shard_trusted_owners();
RESET ROLE;
DROP SCHEMA theirs;
-- Taken away again.
SELECT shard_revoke('an_admin', 'admin');
SELECT count(*) FILTER (WHERE has AND proname <> 'shard_for') AS left FROM rights WHERE rolname = 'an_admin';
SELECT shard_grant('an_admin', 'king');
SELECT shard_grant(NULL, 'admin');
SELECT shard_grant('nobody', 'client');
DROP VIEW rights;
DROP EXTENSION shardmaster;
DROP ROLE a_client, a_monitor, an_operator, an_admin;
