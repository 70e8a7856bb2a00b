-- How it is with a lookup index on its shard, in one answer: the server and its timeline, the steps that the shard knows, whether
-- the queue takes no more, how old its oldest entry is in seconds, and about how many it has. {id}: the lookup index's number there; {identity}: the
-- master's. No row: the shard belongs to another one, or knows no such lookup index.
SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
       l.announced, l.consumed,
       coalesce(pg_sequence_last_value('shardmaster_agent.{queue}_seq'::regclass), 1) > 1,
       (SELECT extract(epoch FROM clock_timestamp() - min(q.at)) FROM (SELECT e.at FROM shardmaster_agent.{queue} e LIMIT 1000) q),
       (SELECT count(*) FROM (SELECT FROM shardmaster_agent.{queue} e LIMIT 100000) q)
  FROM shardmaster_agent.lookup l JOIN shardmaster_agent.master m ON m.identity = {identity} WHERE l.id = {id}
