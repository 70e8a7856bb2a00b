-- Topology: the shards of a cluster, where they are and what they may do.
-- Nothing here connects to a shard: adding one is bookkeeping in the master.
CREATE EXTENSION shardmaster;
\set VERBOSITY default
\set SHOW_CONTEXT never

-- A shard without a connection string is a namespace of this very database.
SELECT shard_add('home') > 0 AS added;
SELECT shard_add('annex', namespace => 'annex') > 0 AS added;
-- Any other is reached with a connection string, as for psql: pairs or a URI.
SELECT shard_add('berlin', 'host=db1.example.com port=5433 dbname=app user=mover sslmode=verify-full sslrootcert=/etc/ca.pem') > 0 AS added;
SELECT shard_add('paris', 'postgresql://mover@db2.example.com:5434/app?passfile=/etc/mover.pass', namespace => 'Data 1') > 0 AS added;
SELECT shard_add('socket', 'host=/run/db port=5435 dbname=''my app''', capacity => 10) > 0 AS added;
-- Shards of other kinds only have slots.
SELECT shard_add('vectors', kind => 'vector', capacity => 100) > 0 AS added;

SELECT shard_index, shard_key, kind, status, host, port, database = current_database() AS here, namespace, auth_kind, active
  FROM shard_topology();
SELECT shard_key, database FROM shard_topology() WHERE host IS NOT NULL;

-- Clients get the place alone: no user of the mover, no paths of its files.
SELECT shard_assign('k1', 'berlin'), shard_assign('k2', 'paris'), shard_assign('k3', 'socket'), shard_assign('k4', 'home');
SELECT k, shard_key, conninfo, namespace
  FROM unnest(ARRAY['k1', 'k2', 'k3', 'k4']) k, shard_route(k);
-- What clients get can also be said. A service stays where nothing else names the server.
SELECT shard_add('rome', 'host=10.0.0.7 user=mover', client_conninfo => 'host=rome.example.com sslmode=require') > 0 AS added;
SELECT shard_add('oslo', 'service=oslo user=mover') > 0 AS added;
SELECT shard_add('bern', 'host=a.example.com,b.example.com port=5432,5433 options=''-c geqo=off'' target_session_attrs=read-write') > 0 AS added;
SELECT shard_assign('k5', 'rome'), shard_assign('k6', 'oslo'), shard_assign('k7', 'bern');
SELECT k, conninfo FROM unnest(ARRAY['k5', 'k6', 'k7']) k, shard_route(k);
SELECT shard_key, host, port FROM shard_topology() WHERE shard_key IN ('oslo', 'bern');

-- Passwords are refused, and not repeated.
SELECT shard_add('p', 'host=h password=sEcret');
SELECT shard_add('p', 'postgresql://u:sEcret@h/db');
SELECT shard_add('p', 'host=h sslpassword=sEcret');
SELECT shard_add('p', 'host=h password=sE cret');
SELECT shard_add('p', 'postgresql://u:sE cret@h:x:y/db');
SELECT shard_add('p', 'host=h', client_conninfo => 'host=h password=sEcret');
-- Other mistakes are.
SELECT shard_add('p', 'host=h colour=blue');
SELECT shard_add('p', 'host=h port');
SELECT shard_add('berlin', 'host=elsewhere');
SELECT shard_add('p', 'host=h', kind => 'vector');
SELECT shard_add('');
SELECT shard_add('p', kind => '');
SELECT shard_add('p', namespace => '');
SELECT shard_add('p', namespace => repeat('n', 64));
SELECT shard_add('p', capacity => -1);
SELECT shard_add(NULL);
SELECT shard_add('p', kind => NULL);

-- Names are taken as they are.
SELECT shard_add('Quoted "Name", with spaces', namespace => 'select') > 0 AS added;

-- Status: draining still serves; disabled is not routed to.
SELECT shard_set_status('berlin', 'draining');
SELECT shard_of('k1');
SELECT shard_set_status('berlin', 'disabled');
SELECT shard_of('k1');
SELECT * FROM shard_route('k1', 'read');
SELECT shard_set_status('berlin', 'active');
SELECT shard_of('k1');
SELECT shard_set_status('berlin', 'asleep');
SELECT shard_set_status('nowhere', 'active');
SELECT shard_set_status(NULL, 'active');
SELECT shard_set_status('berlin', NULL);

-- Capacity: a number of slots, or NULL for no limit.
SELECT shard_set_capacity('vectors', 200);
SELECT shard_set_capacity('vectors', NULL);
SELECT shard_set_capacity('vectors', -1);
SELECT shard_set_capacity('nowhere', 1);

-- Where a shard is may be said anew: the whole string, or parts of it. What is not given stays.
SELECT shard_set_endpoint('berlin', port => 6543, username => 'mover2', options => 'sslmode=require', notes => 'moved');
SELECT shard_key, host, port, database, username, options, auth_kind, active, notes FROM shardmaster.shard_endpoint WHERE shard_key = 'berlin';
SELECT conninfo FROM shard_route('k1');
SELECT shard_set_endpoint('berlin', 'host=db3.example.com dbname=app', notes => '');
SELECT host, port, username, options, notes FROM shardmaster.shard_endpoint WHERE shard_key = 'berlin';
SELECT shard_set_endpoint('rome', client_conninfo => '');
SELECT conninfo FROM shard_route('k5');
-- Readers may be sent to a standby.
SELECT shard_set_endpoint('berlin', read_conninfo => 'host=standby.example.com dbname=app');
SELECT i, conninfo FROM unnest(ARRAY['read', 'write']) i, shard_route('k1', i);
SELECT shard_set_endpoint('berlin', read_conninfo => '');
SELECT conninfo FROM shard_route('k1', 'read');
-- An inactive one is refused.
SELECT shard_set_endpoint('berlin', active => false);
SELECT * FROM shard_route('k1');
SELECT shard_split_plan('home', 'berlin', '{k2}');
SELECT shard_set_endpoint('berlin', active => true);
SELECT shard_of('k1');
-- What it was before, it is again; "active" is one thing wherever it is shown.
SELECT shard_set_status('berlin', 'draining');
SELECT shard_set_endpoint('berlin', active => true);
SELECT t.status, t.active, e.active FROM shard_topology() t JOIN shardmaster.shard_endpoint e USING (shard_key) WHERE shard_key = 'berlin';
SELECT shard_set_endpoint('berlin', active => false);
SELECT shard_set_status('berlin', 'disabled');
SELECT t.status, t.active, e.active FROM shard_topology() t JOIN shardmaster.shard_endpoint e USING (shard_key) WHERE shard_key = 'berlin';
SELECT shard_set_endpoint('berlin', active => true);
SELECT t.status, t.active, e.active FROM shard_topology() t JOIN shardmaster.shard_endpoint e USING (shard_key) WHERE shard_key = 'berlin';
SELECT shard_set_status('berlin', 'disabled');
SELECT shard_set_status('berlin', 'active');
SELECT shard_set_endpoint('berlin', active => false);
SELECT shard_set_endpoint('berlin', active => true);
SELECT t.status, t.active, e.active FROM shard_topology() t JOIN shardmaster.shard_endpoint e USING (shard_key) WHERE shard_key = 'berlin';
-- Shards of other kinds have a uri.
SELECT shard_set_endpoint('vectors', uri => 'https://vectors.example.com/v1', credential_alias => 'vectors');
SELECT kind, host, uri, auth_kind, credential_alias FROM shardmaster.shard_endpoint WHERE shard_key = 'vectors';
SELECT shard_set_endpoint('vectors', uri => 's3://a-bucket-with-quite-a-long-name.s3.eu-central-1.amazonaws.com/vectors/of/2026/v1');
-- Not so:
SELECT shard_set_endpoint('home', 'host=h');
SELECT shard_set_endpoint('vectors', 'host=h');
SELECT shard_set_endpoint('berlin', uri => 'https://h');
SELECT shard_set_endpoint('vectors', uri => 'https://user:sEcret@vectors.example.com/v1');
SELECT shard_set_endpoint('vectors', uri => repeat('v', 2049));
SELECT shard_set_endpoint('berlin', options => 'password=sEcret');
SELECT shard_set_endpoint('berlin', options => 'colour=blue');
SELECT shard_set_endpoint('berlin', auth_kind => 'guess');
SELECT shard_set_endpoint('nowhere', 'host=h');
SELECT shard_set_endpoint(NULL);
SELECT shard_check('vectors');
SELECT shard_check('nowhere');

-- Several at once, as an environment variable of today may have them.
BEGIN;
SELECT shard_add_many('host=a1 dbname=app; postgresql://u@a2/app;host=a3 dbname=''a;b''');
SELECT shard_key, host, database FROM shard_topology() WHERE shard_key LIKE 'shard%';
SELECT shard_add_many('host=a1; password=sEcret', prefix => 's');
ROLLBACK;
SELECT shard_add_many(' ; ');

-- A shard that keys are routed to stays.
SELECT shard_drop('berlin');
SELECT shard_unassign('k1');
SELECT shard_drop('berlin');
SELECT shard_drop('berlin');
SELECT shard_drop(NULL);

-- So does one that a split has, until the split is rolled back or finished.
INSERT INTO shardmaster.split_plan (id, keyspace, source_shard, target_shard, tenants, token)
VALUES (1001, 'default', 'annex', 'bern', '{x}', '');
SELECT shard_drop('annex');
SELECT shard_set_status('annex', 'disabled');
SELECT shard_set_status('bern', 'disabled');
SELECT shard_set_status('annex', 'draining');
UPDATE shardmaster.split_plan SET phase = 'completed' WHERE id = 1001;
SELECT shard_drop('annex');
UPDATE shardmaster.split_plan SET finished_at = now() WHERE id = 1001;
SELECT shard_drop('annex');

-- A shard_index is given once: neither a dropped shard's nor a hole of a rolled-back
-- transaction appears.
BEGIN;
SELECT shard_add('undone') > 0 AS added;
ROLLBACK;
SELECT shard_add('berlin', 'host=db9.example.com') > 0 AS added;
SELECT shard_index, shard_key FROM shard_topology();

-- Programs tell errors by their SQLSTATE.
CREATE FUNCTION state_of(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE query;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT state_of(q), q FROM unnest(ARRAY[
    $$SELECT shard_add(NULL)$$,
    $$SELECT shard_add('berlin')$$,
    $$SELECT shard_add('p', 'password=x')$$,
    $$SELECT shard_add('p', 'colour=blue')$$,
    $$SELECT shard_add('p', capacity => -1)$$,
    $$SELECT shard_set_status('berlin', 'asleep')$$,
    $$SELECT shard_set_status('nowhere', 'active')$$,
    $$SELECT shard_drop('nowhere')$$,
    $$SELECT shard_drop('paris')$$]) q;

DROP FUNCTION state_of;
DROP EXTENSION shardmaster;
