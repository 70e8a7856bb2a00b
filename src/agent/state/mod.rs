//! The tables that a shard has in `shardmaster_agent` while a split uses it, one file for each: the meaning of their
//! rows, and the only statements that read and write them.

pub mod allowed_keys;
pub mod changed;
pub mod consumed;
pub mod decision;
pub mod epoch;
pub mod key_list;
pub mod lease;
pub mod master;
pub mod moved_keys;
pub mod overflow;
pub mod progress;
pub mod queue;
pub mod reference;
pub mod reference_ended;
pub mod scope;
pub mod side;

use crate::agent::error::{Result, SplitError};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};

/// The greatest number of characters of a text from a shard: names of shards, tokens and kinds of entries are shorter.
pub(super) const LONGEST: usize = 200;
/// The greatest number of sides, or of splits in one redirect, that are read in one call.
pub(super) const MANY: usize = 20_000;

/// Refuses an implausible number of rows: each takes little memory, but a hostile shard could send so many that this
/// server's memory is exhausted.
fn require_few(connection: &Connection, count: usize) -> Result<()> {
    if count <= MANY {
        return Ok(());
    }
    let text = format!("more than {MANY}");
    Err(RemoteError::no_number(connection.shard(), "the number of splits", &text).into())
}

/// Returns the answer to a query for one of these tables, or no rows if there is no such table. The schema is dropped
/// with the last split, redirect and list, which another session may do just now.
pub fn ask(connection: &mut Connection, table: &str, query: &str, values: &[Option<&str>]) -> Result<Rows> {
    if has(connection, table)? { or_gone(connection, query, values) } else { Ok(Rows::default()) }
}

/// Returns the answer to a query for a table that was there a moment ago, or no rows if it is gone. A transaction has
/// failed then, and is tried again.
fn or_gone(connection: &mut Connection, query: &str, values: &[Option<&str>]) -> Result<Rows> {
    match connection.query(query, values) {
        Err(error) if !is_gone(&error) => Err(error.into()),
        Err(error) if connection.is_in_transaction() => Err(SplitError::Retry(format!(
            "tables on shard \"{}\" that another session has just removed",
            error.shard
        ))),
        Err(_) => Ok(Rows::default()),
        Ok(rows) => Ok(rows),
    }
}

/// Whether the database has one of these tables. A caller may find it gone a moment later: see `ask`.
pub fn has(connection: &mut Connection, table: &str) -> std::result::Result<bool, RemoteError> {
    let name = format!("shardmaster_agent.{table}");
    Ok(connection.query("SELECT to_regclass($1)", &[Some(&name)])?.scalar().is_some())
}

/// Whether an error means that tables, for example the agent's, do not exist (any more).
pub fn is_gone(error: &RemoteError) -> bool {
    error.is("42P01") || error.is("3F000")
}

/// Drops the tables of one kind and split.
fn drop_tables(connection: &mut Connection, prefix: &str) -> std::result::Result<(), RemoteError> {
    let rows = connection.query(
        "SELECT relname FROM pg_class
          WHERE relnamespace = 'shardmaster_agent'::regnamespace AND relkind = 'r' AND starts_with(relname, $1)",
        &[Some(prefix)],
    )?;
    connection.run_all(rows.column().map(|table| format!("DROP TABLE shardmaster_agent.{table}")))
}
