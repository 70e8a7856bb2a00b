COMMENT ON FUNCTION shard_add(text, text, text, bigint, text, text) IS
'adds a shard and returns its id. conninfo: as for psql, without a password (22023; use a password file or a service); NULL: this very database. kind: "postgres" holds rows, any other has slots alone and no connection string. capacity: number of slots, NULL unlimited. namespace: the schema of its tables. client_conninfo: what shard_route hands out; NULL: conninfo without user, file paths and session options. Below superuser: a schema of this database that the caller owns, whose rows move to and from schemas that it has added, too (42501). 42710: exists already';
COMMENT ON FUNCTION shard_set_status(text, text) IS
'sets a shard''s status: "active"; "draining" (serves reads and writes, takes no placement, is no split''s target); "disabled" (shard_of and shard_route refuse it with 55000; refused with 55006 while an active split has the shard)';
COMMENT ON FUNCTION shard_set_capacity(text, bigint) IS
'sets the number of a shard''s slots; NULL: unlimited';
COMMENT ON FUNCTION shard_drop(text) IS
'takes a shard out of the topology; its data stay. Refused with 55006 while keys are routed to it or an active split has it. Its shard_index is not given again';
COMMENT ON FUNCTION shard_topology() IS
'lists the shards by shard_index. host, port, database: from the connection string, NULL where it leaves them open (a service, several ports); host and port are NULL for a shard that is this very database. active: the status is "active"';
