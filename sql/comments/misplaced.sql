COMMENT ON FUNCTION shard_misplaced(text, text[], interval) IS
'rows on a shard that their key''s route does not name, counted by shard, table and key, with the shard that it names. Read as the caller''s login on all active shards, or on those that are named, at one moment of routing; rows that a split under way has on two shards are left out. timeout: how long each shard is waited for, in all. 42501: no login, or policies would keep rows from it; 42P01: a shard has not the table; 40001: routing changed too fast; all else as of shard_query_json';
COMMENT ON FUNCTION shard_unassigned(text, text[], interval) IS
'rows of keys that are routed nowhere, counted by shard, table and key, those without a key (NULL) among them. All else as of shard_misplaced';
