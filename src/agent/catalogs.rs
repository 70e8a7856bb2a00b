//! Queries over a shard's catalogs, for a few tables among any number of others.
//!
//! They join a few dozen catalogs. The planner's row estimates for such joins are useless: by them it chooses hash
//! joins, which read whole catalogs. If rows are found by indexes only, a split's tables cost a step the same beside
//! ten thousand others as alone. The queries are written in the order in which rows lead to others; a search for a
//! better order takes as long as everything else. By the same estimates the server makes hash tables for recursions as
//! large as work_mem allows, for a handful of rows, and materializes all rows of a catalog to scan them for each of a
//! few hundred partitions, although an index would find them.

use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError, quote};

/// Settings for one message: the following joins are made in the order in which they are written.
pub const AS_WRITTEN: &str = "SET LOCAL join_collapse_limit = 1; SET LOCAL from_collapse_limit = 1";

const SET: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET work_mem = '256kB';
    SET join_collapse_limit = 1; SET from_collapse_limit = 1";
const RESET: &str = "RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material; RESET work_mem;
    RESET join_collapse_limit; RESET from_collapse_limit";

/// Returns parameters none of which is NULL.
pub fn given<T: AsRef<str>, const N: usize>(parameters: &[T; N]) -> [Option<&str>; N] {
    parameters.each_ref().map(|text| Some(text.as_ref()))
}

/// Runs a query that a session asks once or twice.
pub fn ask(
    connection: &mut Connection,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    by_indexes(connection, |connection| connection.query(query, parameters))
}

/// Runs a query that a session asks in each step: it is prepared under its name the first time. The settings are sent
/// in the same message, to save a round trip.
pub fn ask_again(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<Rows, RemoteError> {
    Ok(ask_again_and(connection, name, query, parameters, "")?.swap_remove(0))
}

/// Runs such a query with another one after it, and returns the answers to both.
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

/// Returns the statements of such a query, to be sent with others.
pub fn statements(
    connection: &mut Connection,
    name: &'static str,
    query: &str,
    parameters: &[Option<&str>],
) -> Result<String, RemoteError> {
    connection.prepare(name, query)?;
    let parameters: Vec<String> =
        parameters.iter().map(|text| text.map_or("NULL".to_owned(), quote::literal)).collect();
    // An error ends the transaction and thereby the settings.
    Ok(format!("{SET}; EXECUTE {name}({}); {RESET}", parameters.join(", ")))
}

fn by_indexes(
    connection: &mut Connection,
    query: impl FnOnce(&mut Connection) -> Result<Rows, RemoteError>,
) -> Result<Rows, RemoteError> {
    connection.run(SET)?;
    let answer = query(connection);
    // If an error has ended the transaction, it has ended the settings, too.
    let reset = connection.run(RESET);
    let answer = answer?;
    reset.map(|_| answer)
}
