//! Locks of tables that are about to be read outside of a step.
//!
//! Invariant: what a query over them would run was looked at after these locks were there, and stays what it was until the
//! transaction ends. A query that takes them itself waits for whoever has the table: looked at before, it would be planned
//! over what he has made of it by the time that he lets go.

use super::error::{Result, SplitError};
use super::opening::LOCK_TIMEOUT;
use super::shape::TableShape;
use super::short_lock::{self, Attempt, TableLock};
use super::{catalogs, owners};
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::{ident, text_array};
use crate::remote::{Connection, RemoteError};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const READING: &str = include_str!("../../sql/agent/reading.sql");

/// What is locked, and what is not.
#[derive(Deserialize, PartialEq, Eq, Default)]
pub struct LockedTables {
    /// Qualified and quoted, without their partitions.
    names: BTreeSet<String>,
    /// With their partitions, by their numbers.
    held: BTreeMap<String, String>,
    /// The positions of those of the tables that this role may not read: nothing is to be asked of them, as a query is
    /// planned before it is refused.
    pub closed: BTreeSet<usize>,
}

impl LockedTables {
    /// Whether a table that is asked was looked at under its lock.
    pub fn has(&self, name: &str) -> bool {
        self.held.values().any(|held| held == name)
    }

    /// That no partition has come since.
    pub fn require_leaves(&self, shard: &str, tables: &[TableShape]) -> Result<()> {
        // What is none, a view, is refused by its kind.
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
    let found = catalogs::ask_again(connection, "reading", READING, &[Some(&lists[0]), Some(&lists[1])])?;
    let told = serde_json::from_str(found.scalar().unwrap_or_default());
    Ok(told.map_err(|error| RemoteError::unreadable(connection.shard(), error))?)
}

/// Begins a transaction that has the locks of the tables, which are not waited for while it has some of them: whoever
/// changes one of them may be waiting for another. What is to be locked is asked once more behind the locks: a foreign key,
/// a partition or a right may have come while they were waited for, or a name have another table.
pub fn begin(
    connection: &mut Connection,
    (schemas, tables): (&[String], &[String]),
    patience: Duration,
) -> Result<LockedTables> {
    let lists = [schemas, tables].map(text_array);
    short_lock::again(patience, || {
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
                // One that was dropped, or given another name, is not in the next list.
                if !error.is_lock_timeout() && !error.is("42P01") && !error.is("3F000") {
                    return Err(error.into());
                }
                short_lock::blockers(connection, (TableLock::AccessShare, &names), &error)?
            }
        };
        Ok(Attempt::Waits(reason))
    })
}

/// The same where all of them are to be read.
pub fn begin_all(
    connection: &mut Connection,
    (schemas, tables): (&[String], &[String]),
    patience: Duration,
) -> Result<LockedTables> {
    let locked = begin(connection, (schemas, tables), patience)?;
    let Some(position) = locked.closed.first() else { return Ok(locked) };
    connection.run("ROLLBACK")?;
    let name = |list: &[String]| list.get(*position).map(|name| ident(name)).unwrap_or_default();
    Err(SplitError::failed(
        SqlState::parse("42501"),
        format!(
            "permission denied for table {}.{} of shard \"{}\"",
            name(schemas),
            name(tables),
            connection.shard()
        ),
        "Grant the mover SELECT on it, and USAGE on its schema.",
    ))
}

/// Reads tables where that runs no code of others. Nothing of it stays.
pub fn within<T>(
    connection: &mut Connection,
    (schemas, tables): (Vec<String>, Vec<String>),
    trusted: &[String],
    body: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    // What cannot be locked, a view or a foreign table, is refused by this.
    owners::refuse(connection, (schemas.clone(), tables.clone()), trusted)?;
    begin_all(connection, (&schemas, &tables), guc::remote_timeout())?;
    let outcome = match owners::refuse(connection, (schemas, tables), trusted) {
        Ok(()) => body(connection),
        Err(failure) => Err(SplitError::Failed(failure)),
    };
    end(connection, outcome)
}

/// Ends such a transaction; of two reasons the first one is told.
pub fn end<T>(connection: &mut Connection, outcome: Result<T>) -> Result<T> {
    let ended = connection.run("ROLLBACK");
    let value = outcome?;
    ended?;
    Ok(value)
}
