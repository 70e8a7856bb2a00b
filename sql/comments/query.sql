COMMENT ON FUNCTION shard_login_set(text, text, text, text) IS
'says as whom a role, and whoever has its rights and no login of his own, is connected to a shard, or to all for which nothing else is said, by shard_query(): username there, with a credential of the keychain or by what the account of the server has. For superusers: a shard may let roles in without a proof. 42501: none; 42704: no such role, shard or credential; 22023: the mover''s own role';
COMMENT ON FUNCTION shard_login_drop(text, text) IS
'takes a login away again; of one shard, or the one for all others. For superusers. 42501: none; 42704: no such one';
COMMENT ON FUNCTION shard_logins() IS
'lists as whom roles are connected to the shards; shard is NULL for all of which nothing else is said. A role that was dropped is named by its number. For the owner of the extension: no level shows whom shards know';
COMMENT ON FUNCTION shard_query_json(text, text, text[], interval, text) IS
'runs one query on all active shards at once, or on those that are named, read-only and as the caller''s login there, and gives its rows as JSON, in any order. In the list of a SELECT rows come as they are asked for, and a LIMIT ends the query on all shards. Each key is answered for by one shard, also while splits move it. timeout: how long each shard is waited for, in all; on_error: raise, or report, which gives {"shard_error": {..}} in the place of a shard''s rows that are missing. 42501: no login; 55000: a split is under way, and the query may read past what it hides; 40001: splits were too fast; 25001: not in REPEATABLE READ; errors of shards with their SQLSTATE';
COMMENT ON FUNCTION shard_query(text, text, text[], interval, text) IS
'the same with columns as the caller declares them: SELECT * FROM shard_query(''SELECT id, name FROM item'') AS t (id bigint, name text). With on_error => ''report'' the last one is shard_error jsonb. 42804: a shard gives other columns; all else as of shard_query_json';
