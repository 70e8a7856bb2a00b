//! Rows of `shardmaster.shard`, and errors in them.

use super::caller::Caller;
use crate::catalog::declaration;
use crate::error::{Failure, SqlState, invalid};
use crate::named_enum::named_enum;
use crate::remote::conninfo::{Conninfo, ConninfoError};
use crate::server::sql::{self, Row};
use crate::words::of_split;
use thiserror::Error;

/// The kind of shards that hold rows; every other kind only has slots.
pub const POSTGRES: &str = "postgres";

#[derive(Debug, Error)]
pub enum TopologyError {
    #[error("shard \"{0}\" does not exist")]
    Unknown(String),
    #[error("shard \"{0}\" already exists")]
    Exists(String),
    #[error("shard of kind \"{0}\" cannot have a connection string")]
    ConninfoOfOtherKind(String),
    #[error("shard \"{shard}\" is of kind \"{kind}\", which has no connections")]
    NoServer { shard: String, kind: String },
    #[error("shard \"{0}\" cannot be moved into or out of this database")]
    Here(String),
    #[error("permission denied to set a connection string")]
    ConninfoOfSuperusers,
    #[error("permission denied for schema \"{0}\"")]
    NamespaceOfOthers(String),
    #[error("shard \"{shard}\" is in use by split {split}")]
    InSplit { shard: String, split: i64 },
    #[error("shard \"{shard}\" is in use by execution {execution}")]
    InExecution { shard: String, execution: i64 },
    #[error("shard \"{shard}\" is in use by run {run} of misplaced rows")]
    InRun { shard: String, run: i64 },
    #[error("shard \"{shard}\" redirects clients of keys that left it with split {splits}")]
    Redirects { shard: String, splits: String, since: String, calls: String },
    #[error("shard \"{shard}\" has a guard of keyspace \"{keyspace}\"")]
    Guarded { shard: String, keyspace: String },
    #[error("shard \"{shard}\" is the origin of reference tables of keyspace \"{keyspace}\"")]
    Origin { shard: String, keyspace: String },
    #[error("shard \"{shard}\" is in use: key \"{key}\" of keyspace \"{keyspace}\" is routed to it")]
    Routed { shard: String, key: String, keyspace: String },
}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Failure {
        let (state, hint) = match &error {
            TopologyError::Unknown(_) => {
                (SqlState::UNDEFINED_OBJECT, Some("shard_topology() lists the shards."))
            }
            TopologyError::Exists(_) => (
                SqlState::DUPLICATE_OBJECT,
                Some("shard_topology() lists the shards, shard_set_endpoint() changes where one is."),
            ),
            TopologyError::ConninfoOfOtherKind(_) => {
                (SqlState::INVALID_VALUE, Some("Only shards of kind \"postgres\" have connections."))
            }
            TopologyError::NoServer { .. } => {
                (SqlState::INVALID_VALUE, Some("Only shards of kind \"postgres\" have connections."))
            }
            TopologyError::Here(_) => (
                SqlState::INVALID_VALUE,
                Some(
                    "A shard without a connection string is a schema of this database, and its rows stay there. Add another shard, and move its keys there with a split.",
                ),
            ),
            TopologyError::ConninfoOfSuperusers => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                Some(
                    "The master connects with the files, services and trusted sockets of its own operating-system user. A superuser can add the shard.",
                ),
            ),
            TopologyError::NamespaceOfOthers(_) => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                Some(
                    "Splits move its rows with the rights of the extension's owner. That owner, or a superuser, can add the shard.",
                ),
            ),
            TopologyError::InSplit { .. } => (
                SqlState::IN_USE,
                Some(
                    "Finish it with CALL shard_split_run({id}, 'finished'). Before its cutover, CALL shard_split_run({id}, 'rolled_back') undoes it.",
                ),
            ),
            TopologyError::InExecution { .. } => (
                SqlState::IN_USE,
                Some(
                    "It may have a prepared transaction there. The worker ends it, or CALL shard_execute_resume() does.",
                ),
            ),
            TopologyError::InRun { .. } => (
                SqlState::IN_USE,
                Some(
                    "Wait until it ends, or call shard_misplaced_abandon(). shard_misplaced_runs() lists it.",
                ),
            ),
            TopologyError::Redirects { .. } => (
                SqlState::IN_USE,
                Some(
                    "Once no client has an older route: {calls}. Otherwise it ends after shardmaster.redirect_retention, if that is set.",
                ),
            ),
            TopologyError::Guarded { .. } => (
                SqlState::IN_USE,
                Some("Remove it with shard_guard_remove(), or with force => true if the shard is lost."),
            ),
            TopologyError::Origin { .. } => (
                SqlState::IN_USE,
                Some(
                    "Remove them with shard_table_drop(), and wait for the reference-table worker. shard_status() shows what it waits for.",
                ),
            ),
            TopologyError::Routed { .. } => (
                SqlState::IN_USE,
                Some("Move its keys to another shard, or remove their routes with shard_unassign()."),
            ),
        };
        let failure = Failure::new(state, error.to_string());
        match (hint, &error) {
            (Some(hint), TopologyError::InSplit { split, .. }) => failure.hint(of_split(hint, *split)),
            (Some(hint), TopologyError::Redirects { since, calls, .. }) => {
                failure.detail(since.clone()).hint(hint.replacen("{calls}", calls, 1))
            }
            (Some(hint), _) => failure.hint(hint),
            (None, _) => failure,
        }
    }
}

named_enum! {
    pub enum ShardStatus {
        Active = "active",
        /// The shard serves reads and writes, takes no placement, and is not the target of a split.
        Draining = "draining",
        /// The shard is not routed to.
        Disabled = "disabled",
    }
}

impl ShardStatus {
    pub fn parse(text: &str) -> Result<ShardStatus, Failure> {
        let problem = || format!("\"{text}\" is not one of {}", ShardStatus::names());
        ShardStatus::from_name(text).ok_or_else(|| invalid("status", problem()))
    }

    /// Converts a value that the catalog's own check has admitted.
    pub fn from_catalog(text: &str) -> ShardStatus {
        ShardStatus::from_name(text).unwrap_or(ShardStatus::Disabled)
    }
}

#[derive(Debug, Clone)]
pub struct Shard {
    pub id: i64,
    pub kind: String,
    pub shard_key: String,
    pub shard_index: i32,
    /// `None` if unlimited.
    pub capacity: Option<i64>,
    pub status: ShardStatus,
    /// `None` if the shard is in this very database.
    pub conninfo: Option<String>,
    pub namespace: String,
    pub auth_kind: String,
    pub credential_alias: Option<String>,
    /// The shard's credential, encrypted.
    pub sealed: Option<Vec<u8>>,
}

const COLUMNS: &str =
    "id, kind, shard_key, shard_index, capacity, status, conninfo, namespace, auth_kind, credential_alias,
     (SELECT k.sealed FROM shardmaster.keychain k WHERE k.alias = shard.credential_alias)";

fn from_row(row: Row<'_>) -> Shard {
    Shard {
        id: row.value(1),
        kind: row.value(2),
        shard_key: row.value(3),
        shard_index: row.value(4),
        capacity: row.get(5),
        status: ShardStatus::from_catalog(&row.value::<String>(6)),
        conninfo: row.get(7),
        namespace: row.value(8),
        auth_kind: row.value(9),
        credential_alias: row.get(10),
        sealed: row.get(11),
    }
}

impl Shard {
    pub fn holds_rows(&self) -> bool {
        self.kind == POSTGRES
    }

    /// Requires that it holds rows.
    pub fn require_server(&self) -> Result<(), TopologyError> {
        if self.holds_rows() {
            return Ok(());
        }
        Err(TopologyError::NoServer { shard: self.shard_key.clone(), kind: self.kind.clone() })
    }

    /// Whether the shard is routed to and used in plans.
    pub fn is_active(&self) -> bool {
        self.status != ShardStatus::Disabled
    }

    pub fn takes_placement(&self) -> bool {
        self.status == ShardStatus::Active
    }
}

/// Returns the connection string for clients of a shard with these two strings. Returns None if clients stay on the
/// connection that they have.
pub fn conninfo_for_clients(
    conninfo: Option<&str>,
    client_conninfo: Option<&str>,
) -> Result<Option<String>, ConninfoError> {
    match (client_conninfo, conninfo) {
        (Some(given), _) => Ok(Some(given.to_owned())),
        (None, Some(conninfo)) => Ok(Some(Conninfo::parse(conninfo)?.for_client())),
        (None, None) => Ok(None),
    }
}

pub fn by_key(shard_key: &str) -> Result<Shard, TopologyError> {
    let query = format!("SELECT {COLUMNS} FROM shardmaster.shard WHERE shard_key = $1");
    sql::read_one(&query, &[shard_key.into()], from_row)
        .ok_or_else(|| TopologyError::Unknown(shard_key.into()))
}

pub fn by_id(id: i64) -> Option<Shard> {
    let query = format!("SELECT {COLUMNS} FROM shardmaster.shard WHERE id = $1");
    sql::read_one(&query, &[id.into()], from_row)
}

/// Returns the shards that keys can be routed to, in the order of their shard_index.
pub fn active_servers() -> Vec<String> {
    sql::read_column(
        "SELECT shard_key FROM shardmaster.shard WHERE kind = $1 AND status = 'active' ORDER BY shard_index",
        &[POSTGRES.into()],
    )
}

/// Returns all shards, in the order of their shard_index.
pub fn all() -> Vec<Shard> {
    sql::read(&format!("SELECT {COLUMNS} FROM shardmaster.shard ORDER BY shard_index"), &[], from_row)
}

/// Returns schemas of a shard's database that are not its own: the server's, the extension's, and the namespaces of
/// other shards there.
pub fn schemas_of_others(shard: &Shard) -> Vec<String> {
    let is_other = |other: &Shard| other.conninfo == shard.conninfo && other.namespace != shard.namespace;
    let namespaces = all().into_iter().filter(is_other).map(|other| other.namespace);
    ["information_schema", "shardmaster", "shardmaster_agent"]
        .map(str::to_owned)
        .into_iter()
        .chain(namespaces)
        .collect()
}

/// Returns the next shard_index. The counter's row stays locked until the transaction ends, so that what is read after
/// it about existing shards holds.
pub fn take_index() -> i32 {
    let taken = sql::write_one(
        "UPDATE shardmaster.shard_index_counter SET next = next + 1 RETURNING next - 1",
        &[],
        |row| row.value(1),
    );
    taken.unwrap_or_else(|| pgrx::error!("table \"shardmaster.shard_index_counter\" is empty"))
}

/// What shard_add stores; the status is active.
pub struct NewShard {
    pub shard_key: String,
    pub kind: String,
    pub capacity: Option<i64>,
    pub namespace: String,
}

/// Inserts a shard and returns its id. `endpoint::store` stores its address.
pub fn insert(shard: NewShard, shard_index: i32, caller: &Caller) -> i64 {
    let id = sql::write_one(
        "INSERT INTO shardmaster.shard (shard_key, kind, shard_index, capacity, namespace, added_by)
         VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
        &[
            shard.shard_key.into(),
            shard.kind.into(),
            shard_index.into(),
            shard.capacity.into(),
            shard.namespace.into(),
            declaration::by(caller).into(),
        ],
        |row| row.value(1),
    );
    id.unwrap_or_default()
}

/// Changes the status. A shard that becomes disabled keeps its earlier status.
pub fn set_status(shard: &Shard, status: ShardStatus) {
    sql::write(
        "UPDATE shardmaster.shard
            SET status = $2, updated_at = clock_timestamp(),
                status_active = CASE WHEN $2 <> 'disabled' THEN NULL WHEN status = 'disabled' THEN status_active ELSE status END
          WHERE id = $1",
        &[shard.id.into(), status.as_str().into()],
    );
}

/// Returns the status that a disabled shard had before.
pub fn status_before(shard: &Shard) -> ShardStatus {
    let query = "SELECT status_active FROM shardmaster.shard WHERE id = $1";
    let before: Option<String> = sql::read_optional(query, &[shard.id.into()]);
    before.map_or(ShardStatus::Active, |before| ShardStatus::from_catalog(&before))
}

pub fn set_capacity(shard: &Shard, capacity: Option<i64>) {
    sql::write(
        "UPDATE shardmaster.shard SET capacity = $2, updated_at = clock_timestamp() WHERE id = $1",
        &[shard.id.into(), capacity.into()],
    );
}

pub fn set_service(shard: &Shard, service: Option<&str>) {
    sql::write(
        "UPDATE shardmaster.shard SET service = $2, updated_at = clock_timestamp() WHERE id = $1",
        &[shard.id.into(), service.into()],
    );
}

/// Returns each shard with the addresses of its service, by shard_index.
pub fn services() -> Vec<(String, Option<String>)> {
    sql::read("SELECT shard_key, service FROM shardmaster.shard ORDER BY shard_index", &[], |row| {
        (row.value(1), row.get(2))
    })
}

pub fn delete(shard: &Shard) {
    sql::write("DELETE FROM shardmaster.shard WHERE id = $1", &[shard.id.into()]);
}
