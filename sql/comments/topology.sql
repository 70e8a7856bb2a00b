COMMENT ON FUNCTION shard_add(text, text, text, bigint, text, text, text, text, int, text, text, text, text, text, text, text, boolean) IS
'adds a shard and returns its id. conninfo: as for psql, without a password (22023; use a password file or a service); NULL: this very database. kind: "postgres" holds rows, any other has slots alone, no connection string, and perhaps a uri. capacity: number of slots, NULL unlimited. namespace: the schema of its tables. The others: shard_set_endpoint(). checked: only if shard_check() finds nothing wrong but that another master has been there, whom shard_adopt() follows (55000). Below superuser: a schema of this database that the caller owns, whose rows move to and from schemas that it has added, too (42501). 42710: exists already';
COMMENT ON FUNCTION shard_set_endpoint(text, text, text, text, text, int, text, text, text, text, text, text, text, boolean) IS
'says where a shard is from now on; NULL: that stays. conninfo: as for psql, without a password; host (or several), port, database, username, options (more keywords, as a connection string): parts of it. client_conninfo: what shard_route hands out; without it conninfo without user, file paths and session options. read_conninfo: the same to those who read, of a standby perhaps, while no split moves their key. An empty text takes client_conninfo, read_conninfo, uri, credential_alias and notes away; an empty conninfo leads to where libpq goes by itself. active: false sets the status "disabled", true gives back the one before it. Splits that run open new sessions; clients are told by NOTIFY. Where the shard is guarded, a warning says that shard_guard_install() is to list there what is routed to it. Connection strings: for superusers (42501). 22023: not valid, or a shard in this very database; 42704: no such shard';
COMMENT ON FUNCTION shard_add_many(text, text) IS
'adds a shard for each of the connection strings in a list separated by semicolons; returns their names: the prefix and the first numbers that are free. For superusers, as shard_add()';
COMMENT ON FUNCTION shard_check(text) IS
'connects to a shard as splits do and says what it finds: connection, round trip, clock, role, encryption, rights, settings, what is installed, guards that are not as this master knows them, decided cutovers that this master does not know, of whose keyspaces nothing is routed for writing from then on; ok: as it should be, hint: what to do. Changes nothing on the shard. 42704: no such shard; 22023: a shard of another kind';
COMMENT ON FUNCTION shardmaster.conninfo_parts(text) IS 'a connection string in parts, for the view shard_endpoint';
COMMENT ON FUNCTION shard_set_status(text, text) IS
'sets a shard''s status: "active"; "draining" (serves reads and writes, takes no placement, is no split''s target); "disabled" (shard_of and shard_route refuse it with 55000; refused with 55006 while an active split has the shard)';
COMMENT ON FUNCTION shard_set_capacity(text, bigint) IS
'sets the number of a shard''s slots; NULL: unlimited';
COMMENT ON FUNCTION shard_drop(text) IS
'takes a shard out of the topology; its data stay. Refused with 55006 while keys are routed to it, or an active split or a guard has it; warns where it has copies of reference tables, which go on refusing writes. A shard that splits have moved keys to or from is asked to forget this master; one that does not answer is dropped with a warning. Within a transaction block it is not asked. Its shard_index is not given again';
COMMENT ON FUNCTION shard_topology() IS
'lists the shards by shard_index. host, port, database: from the connection string, NULL where it leaves them open (a service, several ports); host and port are NULL for a shard that is this very database. active: the status is not "disabled", so that it is routed to, as in the view shard_endpoint';

CREATE VIEW shardmaster.shard_endpoint AS
SELECT s.shard_index, s.shard_key, s.kind, p.host, p.port, p.database, CASE s.kind WHEN 'postgres' THEN s.namespace END AS namespace,
       p.username, p.options, s.client_conninfo, s.read_conninfo, s.uri, CASE s.kind WHEN 'postgres' THEN s.auth_kind END AS auth_kind,
       s.credential_alias, s.status <> 'disabled' AS active, s.notes, s.created_at, s.endpoint_at
  FROM shardmaster.shard s CROSS JOIN LATERAL shardmaster.conninfo_parts(s.conninfo) p;
COMMENT ON VIEW shardmaster.shard_endpoint IS 'where each shard is and how the mover gets in, as shard_add() and shard_set_endpoint() have said it; no secret is in it. No host: this very database, or what a service names. options: more keywords of libpq';
