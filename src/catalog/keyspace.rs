//! Rows of `shardmaster.keyspace`. Whoever changes routing, plans a split or takes a
//! shard away holds a keyspace's row lock: what is read under it holds until the commit.

use crate::routing::RoutingError;
use crate::routing::key_type::KeyType;
use crate::sql::{self, Row};

/// The keyspace that is there from the start.
pub const DEFAULT: &str = "default";

#[derive(Debug, Clone)]
pub struct Keyspace {
    pub name: String,
    /// None while no table policy and no caller has said it: keys are taken as text.
    pub key_type: Option<KeyType>,
}

impl Keyspace {
    pub fn key_type(&self) -> KeyType {
        self.key_type.unwrap_or(KeyType::Text)
    }
}

/// A keyspace whose row this transaction has locked.
pub struct Locked(Keyspace);

impl std::ops::Deref for Locked {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.0
    }
}

fn from_row(row: &Row<'_>) -> Keyspace {
    Keyspace { name: row.value(1), key_type: row.get::<String>(2).map(|name| KeyType::from_catalog(&name)) }
}

pub fn find(name: &str) -> Result<Keyspace, RoutingError> {
    sql::read_one("SELECT name, key_type FROM shardmaster.keyspace WHERE name = $1", &[name.into()], |row| {
        from_row(&row)
    })
    .ok_or_else(|| RoutingError::UnknownKeyspace(name.into()))
}

/// Takes the lock first, then reads. The row is also written, once in a transaction: a
/// REPEATABLE READ transaction that comes later gets 40001 instead of acting on what it
/// saw before.
pub fn lock(name: &str) -> Result<Locked, RoutingError> {
    let rows = sql::write_returning(
        "SELECT name, key_type, locked_by IS NOT DISTINCT FROM pg_catalog.pg_current_xact_id()
           FROM shardmaster.keyspace WHERE name = $1 FOR NO KEY UPDATE",
        &[name.into()],
        |row| (from_row(&row), row.value::<bool>(3)),
    );
    let Some((keyspace, written)) = rows.into_iter().next() else {
        return Err(RoutingError::UnknownKeyspace(name.into()));
    };
    if !written {
        sql::write(
            "UPDATE shardmaster.keyspace SET locked_by = pg_catalog.pg_current_xact_id() WHERE name = $1",
            &[name.into()],
        );
    }
    Ok(Locked(keyspace))
}

/// Locks every keyspace, in the order of their names: for what no routing change and no
/// new plan may cross.
pub fn lock_all() -> Result<(), RoutingError> {
    let names = sql::write_returning(
        "SELECT name FROM shardmaster.keyspace ORDER BY name FOR NO KEY UPDATE",
        &[],
        |row| row.value::<String>(1),
    );
    names.iter().try_for_each(|name| lock(name).map(|_| ()))
}

/// The routing version; 0 before the first change.
pub fn version(name: &str) -> i64 {
    sql::read_one(
        "SELECT version FROM shardmaster.routing_version WHERE keyspace = $1 ORDER BY version DESC LIMIT 1",
        &[name.into()],
        |row| row.value(1),
    )
    .unwrap_or(0)
}

/// Adds a directory keyspace; false: there is one of this name.
pub fn insert(name: &str, key_type: KeyType) -> bool {
    sql::write_returning(
        "INSERT INTO shardmaster.keyspace (name, strategy, key_type) VALUES ($1, 'directory', $2)
         ON CONFLICT (name) DO NOTHING RETURNING 1",
        &[name.into(), key_type.name().into()],
        |_| (),
    )
    .len()
        == 1
}

pub fn set_key_type(keyspace: &Locked, key_type: KeyType) {
    sql::write(
        "UPDATE shardmaster.keyspace SET key_type = $2 WHERE name = $1",
        &[keyspace.name.as_str().into(), key_type.name().into()],
    );
}

/// Removes the keyspace with the history of its routing.
pub fn delete(keyspace: &Locked) {
    for query in [
        "DELETE FROM shardmaster.routing_entry WHERE keyspace = $1",
        "DELETE FROM shardmaster.routing_version WHERE keyspace = $1",
        "DELETE FROM shardmaster.keyspace WHERE name = $1",
    ] {
        sql::write(query, &[keyspace.name.as_str().into()]);
    }
}

/// Whether any split, also one long finished, belongs to the keyspace.
pub fn has_splits(keyspace: &Locked) -> bool {
    sql::read_one(
        "SELECT 1 FROM shardmaster.split_plan WHERE keyspace = $1 LIMIT 1",
        &[keyspace.name.as_str().into()],
        |_| (),
    )
    .is_some()
}
