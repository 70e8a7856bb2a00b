COMMENT ON FUNCTION shard_credential_set(text, text, jsonb) IS
'makes a credential for shards, or puts another secret in its place: sealed under the first of the master keys, readable by nobody. auth_kind: password {"password", "username"}, mtls_cert {"certificate", "key", "key_password", "username"}, token_command {"command"}, token_file {"file"}, gcp_workload_identity {"account", "host"}, aws_iam {"region", "profile"}; username, key_password, account, host and profile may be left out. Splits open new sessions with it. The server runs or reads what the last four name, and a username says who the mover is: for superusers (42501). The statement is kept out of the server''s log where the library is preloaded. 22023: not valid; 55000: no master key; 55006: shards use it with another kind';
COMMENT ON FUNCTION shard_credential_drop(text) IS
'forgets a credential. 42704: no such one; 55006: a shard uses it, or a role holds it';
COMMENT ON FUNCTION shard_credential_hold(text, text) IS
'keeps a credential from being dropped, for an object of yours that uses it, which held_for names as you like; said again it is the same. Nothing of the credential is shown. 42704: no such one';
COMMENT ON FUNCTION shard_credential_release(text, text) IS
'takes back what shard_credential_hold() has said, for the role that has said it or a superuser; false: nobody has said so';
COMMENT ON FUNCTION shard_keychain_rotate() IS
'seals all credentials anew under the first of the master keys, in one transaction and while splits run; returns how many. The others may be taken out of the file afterwards. 55000: a master key is missing; XX001: a credential was changed';
COMMENT ON FUNCTION shard_credentials() IS
'lists the credentials without their secrets: what they are for, which shards name them, which master key they are sealed under, who has set them last and when';
