COMMENT ON FUNCTION @extschema@.shard_sequence_add(text, text) IS
    'adds a sequence to a keyspace: clients use it by its name for rows of the keyspace. Splits then raise it on the target past its value on the source, as they do with sequences of columns, of their defaults, and of functions in defaults and triggers. sequence: name (in each shard''s namespace) or schema.name (on every shard), quoted as in SQL. Active splits raise it as well. In the master''s own database the caller must have the right to set it. Example: SELECT shard_sequence_add(''invoice_no''). 42710: it is already there; 22023: not a name; 42704: no such keyspace';
COMMENT ON FUNCTION @extschema@.shard_sequence_drop(text, text) IS
    'removes a sequence from a keyspace that shard_sequence_add() added. The sequence itself stays. Example: SELECT shard_sequence_drop(''invoice_no''). 42704: it is not in the keyspace';
COMMENT ON FUNCTION @extschema@.shard_sequences(text) IS
    'lists the sequences that shard_sequence_add() has added to a keyspace, as SQL writes their names, and who added each. Example: SELECT * FROM shard_sequences()';
