//! Locks of tables that are about to be read outside of a step.
//!
//! Invariant: what a query over them would run was looked at after these locks were there, and stays what it was until the
//! transaction ends. A query that takes them itself waits for whoever has the table: looked at before, it would be planned
//! over what he has made of it by the time that he lets go.

use super::error::{Result, SplitError};
use super::opening::LOCK_TIMEOUT;
use super::short_lock::{self, TableLock};
use super::{catalogs, owners};
use crate::guc;
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError};
use crate::server::wait;
use std::time::{Duration, Instant};

const READING: &str = include_str!("../../sql/agent/reading.sql");

/// Begins a transaction that has the locks of the tables, which are not waited for while it has some of them: whoever
/// changes one of them may be waiting for another.
pub fn begin(connection: &mut Connection, (schemas, tables): (&[String], &[String])) -> Result<()> {
    let lists = [schemas, tables].map(text_array);
    let mut pause = Duration::from_millis(50);
    let deadline = Instant::now() + guc::remote_timeout();
    let _said = wait::said();
    loop {
        let found = catalogs::ask(connection, READING, &[Some(&lists[0]), Some(&lists[1])])?;
        let names: Vec<String> = serde_json::from_str(found.scalar().unwrap_or("[]"))
            .map_err(|error| RemoteError::unreadable(connection.shard(), error))?;
        let lock = match names.is_empty() {
            true => String::new(),
            false => format!(
                "SET LOCAL lock_timeout = '100ms'; LOCK TABLE {} IN ACCESS SHARE MODE;
                 SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
                names.join(", ")
            ),
        };
        let Err(error) = connection.run(&format!("BEGIN; {lock}")) else { return Ok(()) };
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

/// Reads tables where that runs no code of others. Nothing of it stays.
pub fn within<T>(
    connection: &mut Connection,
    (schemas, tables): (Vec<String>, Vec<String>),
    trusted: &[String],
    body: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    // What cannot be locked, a view or a foreign table, is refused by this.
    owners::refuse(connection, (schemas.clone(), tables.clone()), trusted)?;
    begin(connection, (&schemas, &tables))?;
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
