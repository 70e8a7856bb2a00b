-- The hash as the mover's own statements call it, in one of its sessions: by the agent's
-- functions, or by those of an extension that the shard happens to have. Rows without a
-- key have no bucket. Not STRICT: the planner puts the function's text in its place only
-- if all that it calls is strict, and the extension's functions are not.
SET check_function_bodies = off;
CREATE OR REPLACE FUNCTION pg_temp.shard_for(key int8, shard_count int4) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT CASE WHEN key IS NOT NULL THEN {schema}.shard_for(key, shard_count) END';
CREATE OR REPLACE FUNCTION pg_temp.shard_for(key text, shard_count int4) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT CASE WHEN key IS NOT NULL THEN {schema}.shard_for(key, shard_count) END';
CREATE OR REPLACE FUNCTION pg_temp.shard_for(key uuid, shard_count int4) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT CASE WHEN key IS NOT NULL THEN {schema}.shard_for(key, shard_count) END';
RESET check_function_bodies
