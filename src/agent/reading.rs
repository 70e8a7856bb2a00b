//! Locks of tables that are about to be read outside of a step.
//!
//! Invariant: what a query over them would run was looked at after these locks were there, and stays what it was until the
//! transaction ends. A query that takes them itself waits for whoever has the table: looked at before, it would be planned
//! over what he has made of it by the time that he lets go.

use super::error::{Result, SplitError};
use super::opening::LOCK_TIMEOUT;
use super::short_lock::{self, TableLock};
use super::{catalogs, owners};
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::{ident, text_array};
use crate::remote::{Connection, RemoteError};
use crate::server::wait;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const READING: &str = include_str!("../../sql/agent/reading.sql");

#[derive(Deserialize)]
struct Told {
    names: Vec<String>,
    closed: BTreeSet<usize>,
}

/// Begins a transaction that has the locks of the tables, which are not waited for while it has some of them: whoever
/// changes one of them may be waiting for another. Returns the positions of those that this role may not read: they are
/// not locked, so nothing is to be asked of them, as a query is planned before it is refused.
pub fn begin(
    connection: &mut Connection,
    (schemas, tables): (&[String], &[String]),
) -> Result<BTreeSet<usize>> {
    let lists = [schemas, tables].map(text_array);
    let mut pause = Duration::from_millis(50);
    let deadline = Instant::now() + guc::remote_timeout();
    let _said = wait::said();
    loop {
        let found = catalogs::ask(connection, READING, &[Some(&lists[0]), Some(&lists[1])])?;
        let Told { names, closed } = serde_json::from_str(found.scalar().unwrap_or_default())
            .map_err(|error| RemoteError::unreadable(connection.shard(), error))?;
        let lock = match names.is_empty() {
            true => String::new(),
            false => format!(
                "SET LOCAL lock_timeout = '100ms'; LOCK TABLE {} IN ACCESS SHARE MODE;
                 SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
                names.join(", ")
            ),
        };
        let Err(error) = connection.run(&format!("BEGIN; {lock}")) else { return Ok(closed) };
        connection.run("ROLLBACK")?;
        // One that was dropped or given another name meanwhile is not in the next list.
        if !error.is_lock_timeout() && !error.is("42P01") {
            return Err(error.into());
        }
        let reason = short_lock::blockers(connection, (TableLock::AccessShare, &names), &error)?;
        if Instant::now() > deadline {
            return Err(SplitError::Retry(reason));
        }
        wait::report(&reason);
        wait::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// The same where all of them are to be read.
pub fn begin_all(connection: &mut Connection, (schemas, tables): (&[String], &[String])) -> Result<()> {
    let closed = begin(connection, (schemas, tables))?;
    let Some(position) = closed.first() else { return Ok(()) };
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
    begin_all(connection, (&schemas, &tables))?;
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
