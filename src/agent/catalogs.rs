//! Queries over a shard's catalogs, for a few tables among however many others there are.
//!
//! They join a few dozen catalogs. Estimates of how many rows come out of that are worth
//! nothing: hash joins, which the planner chooses by them, read whole catalogs. Found by their
//! indexes alone, a split's tables cost a step the same beside ten thousand others as alone, and
//! to plan such a query takes two thirds of the time.

use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};

/// A query that a session asks once or twice.
pub fn ask(
    connection: &mut Connection,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    by_indexes(connection, |connection| connection.query(query, parameters))
}

/// One that it asks in each step: prepared under its name the first time.
pub fn ask_again(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    by_indexes(connection, |connection| connection.query_prepared(name, query, parameters))
}

fn by_indexes(
    connection: &mut Connection,
    query: impl FnOnce(&mut Connection) -> Result<Rows, RemoteError>,
) -> Result<Rows, RemoteError> {
    connection.run("SET enable_hashjoin = off; SET enable_mergejoin = off")?;
    let answer = query(connection);
    // What an error has ended, its transaction, has taken the settings along.
    let reset = connection.run("RESET enable_hashjoin; RESET enable_mergejoin");
    let answer = answer?;
    reset.map(|_| answer)
}
