//! Rows of `shardmaster.keyspace`. A session that changes routing, plans a split or removes a shard holds a keyspace's
//! row lock: what is read under it holds until the commit.

use super::shard_decision;
use crate::keys::key_type::KeyType;
use crate::keys::strategy::{MissingArgument, Strategy, StrategyKind};
use crate::server::sql::{self, Row};
use pgrx::prelude::*;
use std::num::NonZeroU32;

/// The keyspace that exists from the start.
pub const DEFAULT: &str = "default";

/// No keyspace of this name routes rows.
#[derive(Debug)]
pub enum UnknownKeyspace {
    Nothing(String),
    /// The name is a lookup index that leads to keys of another keyspace, which has the routes.
    Lookup {
        name: String,
        of: String,
    },
}

fn unknown(name: &str) -> UnknownKeyspace {
    let query = "SELECT of_keyspace FROM shardmaster.lookup WHERE name = $1";
    match sql::read_one(query, &[name.into()], |row| row.value(1)) {
        Some(of) => UnknownKeyspace::Lookup { name: name.into(), of },
        None => UnknownKeyspace::Nothing(name.into()),
    }
}

impl Strategy {
    pub fn from_catalog(strategy: &str, buckets: Option<i32>, key_type: Option<KeyType>) -> Strategy {
        let Some(kind) = StrategyKind::from_name(strategy) else {
            error!("unknown strategy \"{strategy}\" in the catalog")
        };
        let buckets = buckets.and_then(|n| NonZeroU32::new(n.unsigned_abs()));
        match kind.with(key_type.and_then(KeyType::ordered), buckets) {
            Ok(strategy) => strategy,
            Err(MissingArgument::Order) => {
                error!("a keyspace of strategy {strategy} whose key type has no order")
            }
            Err(MissingArgument::Buckets) => error!("a keyspace of strategy {strategy} without buckets"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Keyspace {
    pub name: String,
    pub strategy: Strategy,
    /// `None` until a table policy or a caller sets it; keys are then taken as text.
    pub key_type: Option<KeyType>,
}

impl Keyspace {
    pub fn key_type(&self) -> KeyType {
        self.key_type.unwrap_or(KeyType::Text)
    }
}

/// A keyspace whose row this transaction has locked.
pub struct LockedKeyspace(Keyspace);

impl std::ops::Deref for LockedKeyspace {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.0
    }
}

const COLUMNS: &str = "name, key_type, strategy, buckets";

fn from_row(row: &Row<'_>) -> Keyspace {
    let key_type = row.get::<String>(2).map(|name| KeyType::from_catalog(&name));
    let strategy = Strategy::from_catalog(&row.value::<String>(3), row.get(4), key_type);
    Keyspace { name: row.value(1), strategy, key_type }
}

pub fn find(name: &str) -> Result<Keyspace, UnknownKeyspace> {
    let query = format!("SELECT {COLUMNS} FROM shardmaster.keyspace WHERE name = $1");
    sql::read_one(&query, &[name.into()], |row| from_row(&row)).ok_or_else(|| unknown(name))
}

/// Returns all keyspaces, by their names.
pub fn all() -> Vec<Keyspace> {
    let query = format!("SELECT {COLUMNS} FROM shardmaster.keyspace ORDER BY name");
    sql::read(&query, &[], |row| from_row(&row))
}

/// Takes the lock first, then reads. It also writes the row, once in a transaction: a later REPEATABLE READ
/// transaction gets 40001 instead of acting on what it saw before.
pub fn lock(name: &str) -> Result<LockedKeyspace, UnknownKeyspace> {
    let query = format!(
        "SELECT {COLUMNS}, locked_by IS NOT DISTINCT FROM pg_catalog.pg_current_xact_id()
           FROM shardmaster.keyspace WHERE name = $1 FOR NO KEY UPDATE"
    );
    let locked = sql::write_one(&query, &[name.into()], |row| (from_row(&row), row.value::<bool>(5)));
    let (keyspace, written) = locked.ok_or_else(|| unknown(name))?;
    if !written {
        sql::write(
            "UPDATE shardmaster.keyspace SET locked_by = pg_catalog.pg_current_xact_id() WHERE name = $1",
            &[name.into()],
        );
    }
    Ok(LockedKeyspace(keyspace))
}

/// Locks every keyspace, in the order of their names, for changes that must not overlap with a routing change or a new
/// plan.
pub fn lock_all() -> Result<(), UnknownKeyspace> {
    let names = sql::write_returning(
        "SELECT name FROM shardmaster.keyspace ORDER BY name FOR NO KEY UPDATE",
        &[],
        |row| row.value::<String>(1),
    );
    names.iter().try_for_each(|name| lock(name).map(|_| ()))
}

/// Returns when the keyspace was made, in microseconds since 1970, or None if the catalog is not updated yet and does
/// not record it.
pub fn made(name: &str) -> Option<i64> {
    let query = "SELECT (extract(epoch FROM (pg_catalog.to_jsonb(k) ->> 'created_at')::timestamptz) * 1000000)::bigint
                   FROM shardmaster.keyspace k WHERE name = $1";
    sql::read_optional(query, &[name.into()])
}

/// Returns the routing version; 0 before the first change.
pub fn version(name: &str) -> i64 {
    sql::read_one(
        "SELECT version FROM shardmaster.routing_version WHERE keyspace = $1 ORDER BY version DESC LIMIT 1",
        &[name.into()],
        |row| row.value(1),
    )
    .unwrap_or(0)
}

/// Returns the routing version as committed by now, whatever the transaction's snapshot sees.
pub fn latest_version(name: &str) -> i64 {
    let query = "SELECT max(version) FROM shardmaster.routing_version WHERE keyspace = $1";
    sql::read_one_latest(query, &[name.into()], |row| row.get(1)).flatten().unwrap_or(0)
}

/// Adds a keyspace. Returns false if one of this name exists.
pub fn insert(name: &str, key_type: KeyType, strategy: Strategy) -> bool {
    let buckets = strategy.buckets().and_then(|buckets| i32::try_from(buckets.get()).ok());
    sql::write(
        "INSERT INTO shardmaster.keyspace (name, strategy, key_type, buckets) VALUES ($1, $2, $3, $4)
         ON CONFLICT (name) DO NOTHING",
        &[name.into(), strategy.name().into(), key_type.as_str().into(), buckets.into()],
    ) == 1
}

pub fn set_key_type(keyspace: &LockedKeyspace, key_type: KeyType) {
    sql::write(
        "UPDATE shardmaster.keyspace SET key_type = $2 WHERE name = $1",
        &[keyspace.name.as_str().into(), key_type.as_str().into()],
    );
}

/// Removes the keyspace with the history of its routing.
pub fn delete(keyspace: &LockedKeyspace) {
    for query in [
        "DELETE FROM shardmaster.routing_entry WHERE keyspace = $1",
        "DELETE FROM shardmaster.routing_version WHERE keyspace = $1",
        "DELETE FROM shardmaster.keyspace WHERE name = $1",
    ] {
        sql::write(query, &[keyspace.name.as_str().into()]);
    }
}

/// Whether any split belongs to the keyspace, including one long finished.
pub fn has_splits(keyspace: &LockedKeyspace) -> bool {
    // Decisions that were adopted from shards are reported to them with later ones, and name the keyspace as it is.
    let adopted = if shard_decision::is_here() {
        "SELECT 1 FROM shardmaster.adopted_decision WHERE keyspace = $1 AND NOT routes_kept"
    } else {
        "SELECT 1 WHERE false"
    };
    sql::exists(
        &format!("SELECT 1 FROM shardmaster.split_plan WHERE keyspace = $1 UNION ALL {adopted} LIMIT 1"),
        &[keyspace.name.as_str().into()],
    )
}
