//! The rows that configurations of gateways are made of.

use super::shard::POSTGRES;
use crate::server::sql;

/// A shard, as a gateway sees it.
pub struct GatewayBackend {
    pub index: i32,
    pub shard_key: String,
    /// The shard is not disabled.
    pub is_open: bool,
    /// The addresses of its service, separated by commas.
    pub service: Option<String>,
}

impl GatewayBackend {
    pub fn takes_requests(&self) -> bool {
        self.is_open && self.service.is_some()
    }
}

/// Returns all shards that hold rows, by shard_index.
pub fn backends() -> Vec<GatewayBackend> {
    sql::read(
        "SELECT shard_index, shard_key, status <> 'disabled', service FROM shardmaster.shard
          WHERE kind = $1 ORDER BY shard_index",
        &[POSTGRES.into()],
        |row| GatewayBackend {
            index: row.value(1),
            shard_key: row.value(2),
            is_open: row.value(3),
            service: row.get(4),
        },
    )
}

pub struct GatewayEntry {
    pub key: String,
    pub lower: Option<String>,
    pub upper: Option<String>,
    pub shard_index: i32,
}

/// The entries of one version.
pub struct GatewayEntries {
    pub version: i64,
    pub entries: Vec<GatewayEntry>,
}

/// Returns where the rows are now: on the source until a cutover is decided. One query reads them, so that all entries
/// are of one version.
pub fn entries(keyspace: &str) -> GatewayEntries {
    let mut version = 0;
    let entries = sql::read(
        "SELECT coalesce((SELECT max(v.version) FROM shardmaster.routing_version v WHERE v.keyspace = $1), 0),
                e.key, e.lower, e.upper, s.shard_index
           FROM (VALUES (1)) one
           LEFT JOIN (shardmaster.routing_entry e JOIN shardmaster.shard s ON s.shard_key = e.read_shard)
             ON e.keyspace = $1 AND e.valid_to IS NULL
          ORDER BY e.bucket, lower(e.span), e.key COLLATE \"C\"",
        &[keyspace.into()],
        |row| {
            version = row.value(1);
            Some(GatewayEntry { key: row.get(2)?, lower: row.get(3), upper: row.get(4), shard_index: row.value(5) })
        },
    );
    GatewayEntries { version, entries: entries.into_iter().flatten().collect() }
}

/// The database that clients of a shard connect to.
pub struct Database {
    pub shard_key: String,
    pub conninfo: Option<String>,
    pub client_conninfo: Option<String>,
    pub namespace: String,
    /// The socket directory of this server.
    pub socket_directory: String,
    pub port: String,
    pub this_database: String,
}

/// Returns the databases of all shards that hold rows and are not disabled, by shard_index.
pub fn databases() -> Vec<Database> {
    sql::read(
        "SELECT shard_key, conninfo, client_conninfo, namespace,
                split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'),
                current_database()::text
           FROM shardmaster.shard WHERE kind = $1 AND status <> 'disabled' ORDER BY shard_index",
        &[POSTGRES.into()],
        |row| Database {
            shard_key: row.value(1),
            conninfo: row.get(2),
            client_conninfo: row.get(3),
            namespace: row.value(4),
            socket_directory: row.value(5),
            port: row.value(6),
            this_database: row.value(7),
        },
    )
}
