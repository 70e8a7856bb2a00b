COMMENT ON FUNCTION shard_credential_set(text, text, jsonb) IS
'creates a credential for shards, or replaces its secret. The secret is encrypted with the first of the master keys, and nobody can read it. auth_kind: password {"password", "username"}, mtls_cert {"certificate", "key", "key_password", "username"}, token_command {"command"}, token_file {"file"}, gcp_workload_identity {"account", "host"}, aws_iam {"region", "profile"}, of which username, key_password, account, host and profile are optional. New sessions of splits use it. For the last four kinds, and for a username, a superuser is needed (42501): the server runs or reads what they name, and a username names the mover. If the library is preloaded, the statement is not logged. Example: SELECT shard_credential_set(''north'', ''password'', ''{"password": "secret"}''). 22023: not valid; 55000: no master key; 55006: shards use it with another kind';
COMMENT ON FUNCTION shard_credential_drop(text) IS
'deletes a credential. Example: SELECT shard_credential_drop(''north''). 42704: no such credential; 55006: a shard uses it, or a role holds it';
COMMENT ON FUNCTION shard_credential_hold(text, text) IS
'keeps a credential from being dropped, for an object of yours that uses it; held_for is a name of your choice. A repeated call changes nothing. The secret is not shown. Example: SELECT shard_credential_hold(''north'', ''nightly export''). 42704: no such credential';
COMMENT ON FUNCTION shard_credential_release(text, text) IS
'releases a credential that shard_credential_hold() holds. The role that holds it or a superuser may call it. Returns false if nobody holds it. Example: SELECT shard_credential_release(''north'', ''nightly export'')';
COMMENT ON FUNCTION shard_keychain_rotate() IS
'encrypts all credentials again with the first of the master keys, in one transaction and while splits run. Returns their number. The other master keys may then be removed from the file. Example: SELECT shard_keychain_rotate(). 55000: a master key is missing; XX001: a credential was changed';
COMMENT ON FUNCTION shard_credentials() IS
'lists the credentials without their secrets: their kind, the shards that use them, the master key they are encrypted with, who set them last and when. Example: SELECT * FROM shard_credentials()';
