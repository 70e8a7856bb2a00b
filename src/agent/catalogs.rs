//! Queries over a shard's catalogs, for a few tables among however many others there are.
//!
//! They join a few dozen catalogs. Estimates of how many rows come out of that are worth
//! nothing: hash joins, which the planner chooses by them, read whole catalogs. Found by their
//! indexes alone, a split's tables cost a step the same beside ten thousand others as alone. The
//! queries are written in the order in which rows lead to others; to look for a better one takes
//! as long as everything else. And by the same estimates the server makes hash tables for
//! recursions as large as work_mem allows, for a handful of rows, and keeps all rows of a catalog
//! to go through them for each of a few hundred partitions, where it could look by an index.

use crate::remote::quote;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};

/// For one message: what follows is joined in the order in which it is written.
pub const AS_WRITTEN: &str = "SET LOCAL join_collapse_limit = 1; SET LOCAL from_collapse_limit = 1";

const SET: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET work_mem = '256kB';
    SET join_collapse_limit = 1; SET from_collapse_limit = 1";
const RESET: &str = "RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material; RESET work_mem;
    RESET join_collapse_limit; RESET from_collapse_limit";

/// A query that a session asks once or twice.
pub fn ask(
    connection: &mut Connection,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    by_indexes(connection, |connection| connection.query(query, parameters))
}

/// One that it asks in each step: prepared under its name the first time. The settings go with it in
/// one message, since each answer is a way there and back.
pub fn ask_again(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    Ok(ask_again_and(connection, name, query, parameters, "")?.swap_remove(0))
}

/// The same with another question behind it; the answers to both.
pub fn ask_again_and(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
    then: &str,
) -> Result<Vec<Rows>, RemoteError> {
    let message = statements(connection, name, query, parameters)?;
    let mut answers = connection.run_for_each(&format!("{message}; {then}"))?;
    answers.resize_with(answers.len().max(2), Rows::default);
    Ok(answers)
}

/// Its statements, to be sent with others.
pub fn statements(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<String, RemoteError> {
    connection.prepare(name, query)?;
    let parameters: Vec<String> =
        parameters.iter().map(|text| text.map_or("NULL".to_owned(), quote::literal)).collect();
    // What an error ends, its transaction, takes the settings along.
    Ok(format!("{SET}; EXECUTE {name}({}); {RESET}", parameters.join(", ")))
}

fn by_indexes(
    connection: &mut Connection,
    query: impl FnOnce(&mut Connection) -> Result<Rows, RemoteError>,
) -> Result<Rows, RemoteError> {
    connection.run(SET)?;
    let answer = query(connection);
    // What an error has ended, its transaction, has taken the settings along.
    let reset = connection.run(RESET);
    let answer = answer?;
    reset.map(|_| answer)
}
