COMMENT ON FUNCTION shard_assign(text, text, text, boolean, text) IS
'routes a key to a shard and returns the routing version: a new one, or the current one if the key is there already. It moves no rows: a key that is routed to another shard needs force (55000 else). 22P02: no value of the key type; 42704: unknown shard or keyspace; 55000: the shard is disabled; 55006: an active split moves the key';
COMMENT ON FUNCTION shard_assign_many(text[], text, text, boolean, text) IS
'as shard_assign, for many keys in one routing version: all of them or none. Of bigint and uuid shard_assign_keys takes arrays. 22004: a key is NULL; 22023: none, or one given twice';
COMMENT ON FUNCTION shard_assign_bucket(int, text, text, boolean, text) IS
'routes a bucket of a hash keyspace to a shard and returns the routing version: a new one, or the current one if it is there already. It moves no rows: a bucket that is routed to another shard needs force (55000 else). 22023: no such bucket, or not a hash keyspace; 42704: unknown shard or keyspace; 55000: the shard is disabled; 55006: an active split moves the bucket';
COMMENT ON FUNCTION shard_assign_range(text, text, text, text, boolean, text) IS
'routes the keys from lower (NULL: from the first) to before upper (NULL: to the last) of a range keyspace to a shard and returns the routing version: a new one, or the current one if they are there already. Ranges across a bound are cut there. Numbers and uuids have their order, texts that of their bytes. It moves no rows: what is routed to another shard needs force (55000 else). 22023: no key between the bounds, or not a range keyspace; 22P02: no value of the key type; 42704: unknown shard or keyspace; 55006: an active split moves some of them';
COMMENT ON FUNCTION shard_join_ranges(text, text, text) IS
'joins ranges between the bounds (NULL: all) that touch and live on the same shard, and returns the routing version: a new one, or the current one if there are none. Ranges of active splits stay as they are';
COMMENT ON FUNCTION shard_unassign(text, text) IS
'takes a key out of routing and returns the new routing version; its rows stay. 42704: not assigned; 55006: an active split moves the key';
COMMENT ON FUNCTION shard_routing_rollback(bigint, text) IS
'makes a new routing version that routes as the given one did and returns it; the current one, if they do not differ. Refused with 55000, naming keys, where a split has moved a key since, or where a shard is gone or disabled; with 55006 where an active split moves a key';
