COMMENT ON FUNCTION @extschema@.shard_sequence_add(text, text) IS
    'adds a sequence to a keyspace: clients of its rows draw from it by its name. Splits then raise it on the target past where it is on the source, as they do by themselves with sequences of columns, of their defaults, and of functions of defaults and triggers. sequence: name (in each shard''s namespace) or schema.name (on every shard), quoted as in SQL. Splits that are under way take it into account as well. In the master''s own database the caller must be allowed to set it. 42710: already there; 22023: no name; 42704: no such keyspace';
COMMENT ON FUNCTION @extschema@.shard_sequence_drop(text, text) IS
    'takes a sequence out of a keyspace that shard_sequence_add() has added; the sequence stays as it is. 42704: it is not there';
COMMENT ON FUNCTION @extschema@.shard_sequences(text) IS
    'lists the sequences that shard_sequence_add() has added to a keyspace, as SQL writes their names, and who has added each';
