//! Locks of tables that are to be read outside of a step.
//!
//! Invariant: what a query over them would run was checked after these locks were taken, and stays the same until the
//! transaction ends. A query that takes the locks itself waits for the session that holds the table: if it was checked
//! before, it would be planned over what that session has made of the table when it releases the lock.

use super::catalogs;
use super::error::{Result, SplitError};
use super::opening::LOCK_TIMEOUT;
use super::shape::TableShape;
use super::short_lock::{self, TableLock};
use super::state::is_gone;
use super::table_names::TableNames;
use crate::agent::untrusted_code;
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::ident;
use crate::remote::{Connection, RemoteError};
use crate::server::retry::Attempt;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const READING: &str = include_str!("../../sql/agent/reading.sql");

/// What is locked, and what is not.
#[derive(Deserialize, PartialEq, Eq, Default)]
pub struct LockedTables {
    /// The names, qualified and quoted, without their partitions.
    names: BTreeSet<String>,
    /// The tables with their partitions, by their numbers.
    held: BTreeMap<String, String>,
    /// The positions of tables that this role may not read: they must not be queried at all, as a query is planned
    /// before it is refused.
    pub closed: BTreeSet<usize>,
}

impl LockedTables {
    /// Whether a table was checked under its lock.
    pub fn has(&self, name: &str) -> bool {
        self.held.values().any(|held| held == name)
    }

    /// Refuses tables that have got a partition since.
    pub fn require_leaves(&self, shard: &str, tables: &[TableShape]) -> Result<()> {
        // A relation that is not a table, for example a view, is refused by its kind.
        let mut leaves = tables.iter().flat_map(TableShape::leaves).filter(|leaf| leaf.kind == "r");
        match leaves.find(|leaf| !self.held.contains_key(&leaf.oid)) {
            Some(leaf) => {
                Err(SplitError::Retry(format!("{} on shard \"{shard}\", which has just appeared", leaf.name)))
            }
            None => Ok(()),
        }
    }
}

fn ask(connection: &mut Connection, lists: &[String; 2]) -> Result<LockedTables> {
    let found = catalogs::ask_again(connection, "reading", READING, &catalogs::given(lists))?;
    let told = serde_json::from_str(found.scalar().unwrap_or_default());
    Ok(told.map_err(|error| RemoteError::unreadable(connection.shard(), error))?)
}

/// Begins a transaction that has the locks of the tables. It does not wait for one while it holds others: a session
/// that changes one of them may be waiting for another. What must be locked is read once more under the locks: a
/// foreign key, a partition or a right may have been added during the wait, or a name may have another table.
pub fn begin(connection: &mut Connection, tables: &TableNames, longest: Duration) -> Result<LockedTables> {
    let lists = tables.lists();
    short_lock::again(longest, || {
        let to_lock = ask(connection, &lists)?;
        let names: Vec<String> = to_lock.names.iter().cloned().collect();
        let lock = if names.is_empty() {
            String::new()
        } else {
            format!(
                "SET LOCAL lock_timeout = '100ms'; LOCK TABLE {} IN ACCESS SHARE MODE;
                 SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
                names.join(", ")
            )
        };
        let reason = match connection.run(&format!("BEGIN; {lock}")) {
            Ok(_) if ask(connection, &lists)? == to_lock => return Ok(Attempt::Done(to_lock)),
            Ok(_) => {
                connection.run("ROLLBACK")?;
                format!("tables of shard \"{}\", which keep changing", connection.shard())
            }
            Err(error) => {
                connection.run("ROLLBACK")?;
                // A table that was dropped or renamed is not in the next list.
                if !error.is_lock_timeout() && !is_gone(&error) {
                    return Err(error.into());
                }
                short_lock::blockers(connection, TableLock::AccessShare, &names, &error)?
            }
        };
        Ok(Attempt::Waits(reason))
    })
}

/// Begins such a transaction if all of the tables are to be read: one that this role may not read is an error.
pub fn begin_all(
    connection: &mut Connection,
    tables: &TableNames,
    longest: Duration,
) -> Result<LockedTables> {
    let locked = begin(connection, tables, longest)?;
    let Some(position) = locked.closed.first() else { return Ok(locked) };
    connection.run("ROLLBACK")?;
    let name = |list: &[String]| list.get(*position).map(|name| ident(name)).unwrap_or_default();
    Err(SplitError::failed(
        SqlState::parse("42501"),
        format!(
            "permission denied for table {}.{} of shard \"{}\"",
            name(&tables.schemas),
            name(&tables.names),
            connection.shard()
        ),
        "Grant the mover SELECT on it, and USAGE on its schema.",
    ))
}

/// Reads tables if that runs no code of others. Nothing of it stays.
pub fn within<T>(
    connection: &mut Connection,
    tables: &TableNames,
    trusted: &[String],
    body: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    // This refuses what cannot be locked, for example a view or a foreign table.
    untrusted_code::refuse(connection, tables, trusted)?;
    begin_all(connection, tables, guc::remote_timeout())?;
    let outcome = match untrusted_code::refuse(connection, tables, trusted) {
        Ok(()) => body(connection),
        Err(failure) => Err(SplitError::Failed(failure)),
    };
    end(connection, outcome)
}

/// Ends such a transaction. Of two errors the first one is returned.
pub fn end<T>(connection: &mut Connection, outcome: Result<T>) -> Result<T> {
    let ended = connection.run("ROLLBACK");
    let value = outcome?;
    ended?;
    Ok(value)
}
