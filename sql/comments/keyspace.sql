COMMENT ON FUNCTION shard_keyspace_add(text, text, int, regtype, text[], text) IS
'adds a keyspace: tables that are routed by the same key. strategy: "directory" (each key has an entry), "hash" (each of so many buckets has one; shards, all active servers if NULL, get them in turn; buckets NULL: one for each shard) "range" (entries by shard_assign_range) or "lookup" (its keys lead to keys of the keyspace "of", by the column that shard_table_add names). key_type: smallint, integer, bigint, numeric (directory only), text, varchar, char, uuid or an enum. 42710: exists already; 22023: arguments that the strategy does not take';
COMMENT ON FUNCTION shard_keyspace_drop(text) IS
'drops a keyspace with its entries and the history of its routing. Refused with 55006 while tables, lookup indexes, or keys of a directory are in it, or it has splits or guards; buckets and ranges, which cannot be taken out, go with it; "default" stays (55000)';
COMMENT ON FUNCTION shard_table_add(text, text, text, regtype, text, text) IS
'adds a table to a keyspace. table_name: name (in each shard''s namespace) or schema.name (on every shard), quoted as in SQL. shard_by: the plain name of the column that holds the key. The keyspace "default" takes its key type from key_type, or from the column of the first table that a shard in this database has; where neither tells, keys are text. policy: "sharded"; "reference", whose rows every shard has as origin, a shard, has them; or "global", which stays where it is: both have no shard_by (NULL). 42703: no such column; 42710: already there; 55006: an active split works on the keyspace, and the table is not global';
COMMENT ON FUNCTION shard_table_drop(text, text) IS
'takes a table out of a keyspace; its data stay. 55006: an active split works on the keyspace';
COMMENT ON FUNCTION shard_tables(text) IS
'lists the tables of a keyspace: names as SQL writes them, the plain name of the shard-by column, and the policy: sharded, reference or global';
