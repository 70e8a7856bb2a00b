-- Credentials of shards: sealed under a key that is not in the database, shown by nothing.
CREATE EXTENSION shardmaster;
\set VERBOSITY default
\set SHOW_CONTEXT never

SELECT shard_credential_set('north', 'password', '{"password": "sEcret", "username": "mover"}');
SELECT shard_credential_set('certificate', 'mtls_cert', '{"certificate": "PEM", "key": "sEcret"}');
SELECT shard_credential_set('sidecar', 'token_file', '{"file": "/run/token"}');
SELECT shard_credential_set('shell', 'token_command', '{"command": "echo sEcret"}');
SELECT shard_credential_set('google', 'gcp_workload_identity', '{}');
SELECT shard_credential_set('amazon', 'aws_iam', '{"region": "eu-west-1"}');
SELECT alias, auth_kind, shards, master_key, set_by = current_user AS by_me FROM shard_credentials();
SELECT alias, strpos(encode(sealed, 'escape'), 'sEcret') FROM shardmaster.keychain ORDER BY alias;
-- Twice the same secret is sealed twice, and does not look alike.
SELECT sealed AS before FROM shardmaster.keychain WHERE alias = 'north' \gset
SELECT shard_credential_set('north', 'password', '{"password": "sEcret", "username": "mover"}');
SELECT sealed <> :'before' AS differs FROM shardmaster.keychain WHERE alias = 'north';

-- Not a secret of its kind. None of it is repeated.
SELECT shard_credential_set('x', 'password', '"sEcret"');
SELECT shard_credential_set('x', 'password', '{"sEcret": "password"}');
SELECT shard_credential_set('x', 'password', '{"password": 1}');
SELECT shard_credential_set('x', 'password', '{"password": ""}');
SELECT shard_credential_set('x', 'mtls_cert', '{"certificate": "PEM"}');
SELECT shard_credential_set('x', 'libpq', '{}');
SELECT shard_credential_set('x', 'kerberos', '{}');
SELECT shard_credential_set('', 'password', '{"password": "sEcret"}');
SELECT shard_credential_set(NULL, 'password', '{"password": "sEcret"}');
SELECT shard_credential_set('x', NULL, '{"password": "sEcret"}');
SELECT shard_credential_set('x', 'password', NULL);

-- An endpoint names one, and takes its kind.
SELECT shard_add('a', 'host=a.example.com dbname=app user=mover sslmode=verify-full', credential_alias => 'north') > 0 AS added;
SELECT shard_key, auth_kind, credential_alias FROM shard_topology();
SELECT alias, shards FROM shard_credentials() WHERE shards <> '{}';
SELECT shard_set_endpoint('a', credential_alias => 'certificate');
SELECT shard_set_endpoint('a', credential_alias => 'sidecar');
SELECT shard_key, auth_kind, credential_alias FROM shard_topology();
SELECT shard_set_endpoint('a', credential_alias => '');
SELECT shard_key, auth_kind, credential_alias FROM shard_topology();
-- What no session could be opened with, or would show a secret to whoever listens.
SELECT shard_set_endpoint('a', credential_alias => 'nowhere');
SELECT shard_set_endpoint('a', auth_kind => 'password');
SELECT shard_set_endpoint('a', auth_kind => 'password', credential_alias => 'certificate');
SELECT shard_set_endpoint('a', auth_kind => 'libpq', credential_alias => 'north');
SELECT shard_set_endpoint('a', auth_kind => 'peer');
SELECT shard_set_endpoint('a', 'host=a dbname=app user=mover', credential_alias => 'sidecar');
SELECT shard_set_endpoint('a', 'host=a dbname=app user=mover sslmode=require', credential_alias => 'shell');
SELECT shard_set_endpoint('a', 'host=a dbname=app sslmode=verify-full', credential_alias => 'google');
SELECT shard_set_endpoint('a', 'host=a dbname=app user=mover', credential_alias => 'north');
SELECT shard_set_endpoint('a', 'host=a dbname=app user=mover sslmode=prefer', credential_alias => 'certificate');
SELECT shard_set_endpoint('a', 'host=/run/postgresql dbname=app', auth_kind => 'peer');
SELECT shard_set_endpoint('a', 'host=/run/postgresql dbname=app user=mover', credential_alias => 'sidecar');
SELECT shard_add('b', namespace => 'b', credential_alias => 'north');
-- A token that is signed for one host is for no other.
SELECT shard_set_endpoint('a', 'host=a1,a2 dbname=app user=mover sslmode=verify-full', credential_alias => 'amazon');
SELECT shard_set_endpoint('a', 'hostaddr=192.0.2.1 dbname=app user=mover sslmode=verify-ca', credential_alias => 'amazon');
SELECT shard_set_endpoint('a', 'host=a hostaddr=192.0.2.1,192.0.2.2 dbname=app user=mover sslmode=verify-full', credential_alias => 'amazon');
SELECT shard_set_endpoint('a', 'service=a user=mover sslmode=verify-full', credential_alias => 'amazon');
BEGIN;
SELECT shard_set_endpoint('a', 'host=a hostaddr=192.0.2.1 port=6432 dbname=app user=mover sslmode=verify-full', credential_alias => 'amazon');
SELECT shard_set_endpoint('a', host => 'a1,a2');
ROLLBACK;

-- It stays while it is used, and keeps its kind.
SELECT shard_credential_drop('sidecar');
SELECT shard_credential_set('sidecar', 'password', '{"password": "sEcret"}');
SELECT shard_credential_drop('nowhere');
SELECT shard_credential_drop(NULL);
SELECT shard_credential_drop('certificate');
SELECT shard_credential_set('certificate', 'password', '{"password": "sEcret"}');

-- Sealed anew, all of them.
SELECT sealed AS before FROM shardmaster.keychain WHERE alias = 'north' \gset
SELECT shard_keychain_rotate();
SELECT sealed <> :'before' AS differs FROM shardmaster.keychain WHERE alias = 'north';
SELECT item, value, ok FROM shard_status() WHERE item = 'keychain';
-- One that somebody has changed, or put in the place of another, is found.
UPDATE shardmaster.keychain SET sealed = (SELECT sealed FROM shardmaster.keychain WHERE alias = 'certificate') WHERE alias = 'north';
SELECT item, value, ok FROM shard_status() WHERE item = 'keychain';
SELECT shard_keychain_rotate();
SELECT shard_credential_set('north', 'password', '{"password": "sEcret"}');
SELECT ok FROM shard_status() WHERE item = 'keychain';

-- Below superuser nothing is set that the server would run or read, nor who the mover is.
CREATE ROLE keeper;
SELECT shard_grant('keeper', 'admin');
SET ROLE keeper;
SELECT shard_credential_set('own', 'password', '{"password": "sEcret"}');
SELECT shard_credential_set('own', 'password', '{"password": "sEcret", "username": "postgres"}');
SELECT shard_credential_set('own', 'token_command', '{"command": "id"}');
SELECT shard_credential_set('sidecar', 'token_file', '{"file": "/etc/passwd"}');
SELECT shard_set_endpoint('a', credential_alias => 'own');
SELECT count(*) FROM shard_credentials();
SELECT sealed FROM shardmaster.keychain;
-- Its text is another one in each version.
\set VERBOSITY sqlstate
SHOW shardmaster.master_key_command;
\set VERBOSITY default
RESET ROLE;
-- What of users needs one keeps it from being dropped; a table that refers to it would have rows of the extension fire code of its owner.
SELECT shard_credential_hold('north', 'bucket photos'), shard_credential_hold('nowhere', 'bucket photos');
SELECT shard_credential_hold('north', 'bucket photos');
SELECT shard_credential_drop('north');
SELECT shard_credential_release('north', 'bucket photos'), shard_credential_release('north', 'bucket photos') AS again;
CREATE TABLE bucket (name text PRIMARY KEY, credential text REFERENCES shardmaster.keychain);
SELECT shard_credential_drop('north');
DROP TABLE bucket;
SELECT shard_revoke('keeper', 'admin');
DROP ROLE keeper;

DROP EXTENSION shardmaster;
