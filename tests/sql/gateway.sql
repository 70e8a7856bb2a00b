-- Gateways: addresses of services, and configurations.
\set VERBOSITY default
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION shardmaster;
SELECT shard_add('a', 'dbname=shard_a user=mover'), shard_add('b', 'dbname=shard_b user=mover host=10.0.0.2 port=5433'),
       shard_add('c', namespace => 'the "c"');

-- Addresses
SELECT shard_set_service('a', '10.0.0.1:8080'), shard_set_service('b', '[::1]:80,unix:/run/b.sock,  b.example:80');
SELECT * FROM shard_services();
SELECT shard_set_service('b', NULL);
SELECT * FROM shard_services();
SELECT shard_set_service('nobody', 'x:1');
SELECT shard_set_service(NULL, 'x:1');
SELECT shard_set_service('a', 'x:1; } server { listen 80');
SELECT shard_set_service('a', '');

-- What can be asked for
SELECT shard_gateway_config('apache');
SELECT shard_gateway_config(NULL);
SELECT shard_gateway_config('nginx', 'none');
SELECT shard_gateway_config('nginx', 'default', 'cookie:a');
SELECT shard_gateway_config('nginx', 'default', 'header:a"; os.execute("x")');
SELECT shard_gateway_config('nginx', 'default', 'path:0');
SELECT shard_gateway_config('nginx', 'default', listen => '80; }');

-- A directory: every byte that is not plain is written as its number
SELECT shard_assign_many('{acme,"a b","\"]]"}', 'a'), shard_assign('bolt', 'b');
\set lua 'regexp_replace(text, ''package.preload.*(return require)'', ''\\1'')'
SELECT :lua FROM shard_gateway_config('lua') text;
SELECT shard_set_service('b', 'b:80');
SELECT shard_gateway_config('nginx-upstreams');
SELECT regexp_replace(text, 'package.preload.*package.loaded', '... package.loaded')
  FROM shard_gateway_config('nginx-location', 'default', 'query:tenant') text;
SELECT regexp_replace(text, 'if not route.*package.loaded', '... package.loaded') FROM shard_gateway_config('nginx') text;

-- Buckets and ranges
SELECT shard_keyspace_add('orders', 'hash', 8, key_type => 'bigint', shards => '{a,b}');
SELECT :lua FROM shard_gateway_config('lua', 'orders') text;
SELECT shard_keyspace_add('It''s "ours" -- ]]', 'range', key_type => 'uuid');
SELECT shard_assign_range(NULL, '80000000-0000-0000-0000-000000000000', 'a', 'It''s "ours" -- ]]');
SELECT :lua FROM shard_gateway_config('lua', 'It''s "ours" -- ]]') text;
SELECT shard_gateway_config('nginx-upstreams', 'It''s "ours" -- ]]');
-- A keyspace without entries has a configuration, too
SELECT shard_keyspace_add('empty', 'range');
SELECT :lua FROM shard_gateway_config('lua', 'empty') text;

-- PgBouncer: without the mover's name; what it cannot have is left out
SELECT regexp_replace(text, 'host=''/[^'']*'' port=''\d*''', 'host=... port=...') FROM shard_gateway_config('pgbouncer') text;

-- Nobody may ask who has not been allowed to
SET ROLE app;
SELECT shard_gateway_config('pgbouncer');
SELECT shard_set_service('a', NULL);
RESET ROLE;
DROP EXTENSION shardmaster;
