-- The shard of a key by its hash, as published.
CREATE EXTENSION shardmaster;
CREATE TEMP TABLE vector (line json);
\copy vector FROM PROGRAM 'cat "$SHARDMASTER_INPUTS/vectors.jsonl"' WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')
SELECT line ->> 0 AS type, count(*) > 300 AS many, count(*) FILTER (WHERE found <> (line ->> 3)::int) AS wrong
  FROM (SELECT line, CASE line ->> 0 WHEN 'bigint' THEN shard_for((line ->> 1)::bigint, (line ->> 2)::int)
                                     WHEN 'uuid' THEN shard_for((line ->> 1)::uuid, (line ->> 2)::int)
                                     WHEN 'text' THEN shard_for(line ->> 1, (line ->> 2)::int) END AS found
          FROM vector) v
 GROUP BY 1 ORDER BY 1;
-- What a split of buckets brings to a shard gives the same, whatever the search_path.
CREATE SCHEMA shardmaster_agent;
\set agent `echo "$SHARDMASTER_INPUTS/shard_for.sql"`
\set ECHO none
\i :agent
\set ECHO all
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.wrong(int8, int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS 'SELECT 0::int8';
CREATE OPERATOR hostile.# (LEFTARG = int8, RIGHTARG = int8, FUNCTION = hostile.wrong);
CREATE OPERATOR hostile.| (LEFTARG = int8, RIGHTARG = int8, FUNCTION = hostile.wrong);
SET search_path = hostile, pg_catalog, public;
SELECT line ->> 0 AS type, count(*) FILTER (WHERE found <> (line ->> 3)::int) AS wrong
  FROM (SELECT line, CASE line ->> 0
                          WHEN 'bigint' THEN shardmaster_agent.shard_for((line ->> 1)::bigint, (line ->> 2)::int)
                          WHEN 'uuid' THEN shardmaster_agent.shard_for((line ->> 1)::uuid, (line ->> 2)::int)
                          WHEN 'text' THEN shardmaster_agent.shard_for(line ->> 1, (line ->> 2)::int) END AS found
          FROM vector) v
 GROUP BY 1 ORDER BY 1;
SELECT shardmaster_agent.shard_for(NULL::bigint, 16) IS NULL AS of_nobody;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA shardmaster_agent, hostile CASCADE;
-- A number without a type is a bigint, a string a text.
SELECT shard_for(42, 16) = shard_for(42::bigint, 16) AS number, shard_for('42', 16) = shard_for('42'::text, 16) AS string;
SELECT shard_for(1, 0);
SELECT shard_for('1', -1);
SELECT shard_for(NULL::bigint, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT shard_for('x', NULL);
-- It can be indexed, and called by everybody in parallel.
CREATE TABLE event (id bigint);
CREATE INDEX ON event (shard_for(id, 16));
SELECT proname, pg_get_function_identity_arguments(oid), provolatile, proparallel, has_function_privilege('app', oid, 'EXECUTE')
  FROM pg_proc WHERE proname = 'shard_for' ORDER BY 2;
DROP TABLE event;
DROP EXTENSION shardmaster;
