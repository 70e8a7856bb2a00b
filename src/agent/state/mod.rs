//! The tables that a shard has in `shardmaster_agent` while a split touches it, one file for
//! each: what their rows say, and the only statements that read and write them. The tables
//! of one split (queues, scopes, barriers) are in the rooms that create them; a redirect's in
//! `agent::redirect`.

pub mod consumed;
pub mod lease;
pub mod master;
pub mod overflow;
pub mod progress;
pub mod side;
pub mod tenure;

use crate::remote::{Connection, RemoteError};

/// Whether the database has one of these tables. The schema goes with the last split and the
/// last redirect, so whoever asks a table may find it gone a moment later: see `is_gone`.
pub fn has(connection: &mut Connection, table: &str) -> Result<bool, RemoteError> {
    let name = format!("shardmaster_agent.{table}");
    Ok(connection.query("SELECT to_regclass($1)", &[Some(&name)])?.scalar().is_some())
}

/// The agent's tables are not there (any more).
pub fn is_gone(error: &RemoteError) -> bool {
    error.is("42P01") || error.is("3F000")
}
