-- Run once before the suites: roles as the documentation tells users to make them.
CREATE ROLE owner NOLOGIN;
CREATE ROLE mover LOGIN;
CREATE ROLE app LOGIN;
GRANT owner TO mover;
GRANT pg_monitor TO mover;
SELECT current_setting('server_version_num')::int < 150000 AS is_old \gset
\if :is_old
ALTER ROLE mover SUPERUSER;
\else
GRANT SET ON PARAMETER session_replication_role TO mover;
\endif
-- A key that everybody knows, for credentials that nobody uses.
ALTER SYSTEM SET shardmaster.master_key_command = 'printf %064d 1';
SELECT pg_reload_conf();
\connect shard_a
GRANT CREATE, TEMP ON DATABASE shard_a TO mover;
GRANT CREATE, USAGE ON SCHEMA public TO owner;
\connect shard_b
GRANT CREATE, TEMP ON DATABASE shard_b TO mover;
GRANT CREATE, USAGE ON SCHEMA public TO owner;
