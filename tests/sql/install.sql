-- The extension installs into a database and comes away without a trace.
CREATE EXTENSION shardmaster;
SELECT extname, extrelocatable FROM pg_extension WHERE extname = 'shardmaster';
SELECT count(*) > 0 AS has_catalog FROM pg_tables WHERE schemaname = 'shardmaster';
DROP EXTENSION shardmaster;
SELECT count(*) AS left_behind FROM pg_namespace WHERE nspname = 'shardmaster';
-- So does every function, table and view say what it is.
CREATE EXTENSION shardmaster;
SELECT pg_describe_object(classid, objid, 0) AS says_nothing FROM pg_depend d
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster')
   AND NOT EXISTS (SELECT FROM pg_class c WHERE classid = 'pg_class'::regclass AND c.oid = objid AND relkind = 'S')
   -- What a type has brought along.
   AND NOT EXISTS (SELECT FROM pg_depend t WHERE t.classid = d.classid AND t.objid = d.objid AND t.deptype = 'i')
   AND coalesce(obj_description(objid, classid::regclass::name), '') = '' ORDER BY 1;
-- What \df shows of each fits a line but for the arguments, which `\pset format wrapped` folds: the widest of both.
CREATE TEMPORARY VIEW shown AS
SELECT p.proname, length(pg_get_function_result(p.oid)) AS result, length(pg_get_function_arguments(p.oid)) AS arguments
  FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
 WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster') AND d.deptype = 'e'
   AND p.pronamespace = 'public'::regnamespace;
SELECT proname, result FROM shown WHERE result > 80 ORDER BY result DESC;
SELECT proname, arguments FROM shown ORDER BY arguments DESC LIMIT 1;
DROP EXTENSION shardmaster;
-- The settings have descriptions and units.
SELECT name, unit FROM pg_settings
 WHERE name LIKE 'shardmaster.%' AND (short_desc = '' OR name ~ 'time' AND unit IS NULL);
-- Keys are written in UTF-8: another encoding is refused before anything is there.
\set SHOW_CONTEXT never
SELECT current_database() AS database \gset
CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
\c latin
CREATE EXTENSION shardmaster;
SELECT count(*) AS left_behind FROM pg_namespace WHERE nspname = 'shardmaster';
\c :database
DROP DATABASE latin;
