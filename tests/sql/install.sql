-- The extension installs into a database and comes away without a trace.
CREATE EXTENSION shardmaster;
SELECT extname, extrelocatable FROM pg_extension WHERE extname = 'shardmaster';
SELECT count(*) > 0 AS has_catalog FROM pg_tables WHERE schemaname = 'shardmaster';
DROP EXTENSION shardmaster;
SELECT count(*) AS left_behind FROM pg_namespace WHERE nspname = 'shardmaster';
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
