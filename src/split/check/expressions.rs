//! What shard_split_map() says must be a function of one row of the source: the copy, every
//! change and every comparison computes it again, and must come to the same.

use super::Finding;
use crate::agent::error::Result;
use crate::agent::shape::Observation;
use crate::catalog::split::Plan;
use crate::remote::{Connection, RemoteError};

const MADE_OF: &str = include_str!("../../../sql/check/expression.sql");
const FUNCTIONS: &str = include_str!("../../../sql/check/expression_functions.sql");

/// That the source can compute what is mapped.
pub fn check(
    plan: &Plan,
    connection: &mut Connection,
    observation: &Observation,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for (policy, shape) in plan.tables.iter().zip(&observation.tables) {
        for map in &policy.maps {
            let (Some(expression), Some(_)) = (&map.expression, &shape.oid) else { continue };
            let detail = format!("{}: column \"{}\": {expression}", shape.name, map.column);
            let problem = match problem(connection, &shape.name, expression) {
                Ok(problem) => problem,
                Err(error) if error.sqlstate.is_some() => Some(error.message),
                Err(error) => return Err(error.into()),
            };
            findings.push(Finding::new(
                "source: computed columns",
                problem.is_none(),
                problem.map_or(detail.clone(), |problem| format!("{detail}: {problem}")),
                "Say it again with shard_split_map(), as one SQL expression over one row of the source, \
                 of functions that are IMMUTABLE or STABLE and, where they are not plain SQL, have SET search_path.",
            ));
        }
    }
    Ok(())
}

/// What is wrong with an expression that the server can compute.
fn problem(
    connection: &mut Connection,
    table: &str,
    expression: &str,
) -> std::result::Result<Option<String>, RemoteError> {
    // One that closes a parenthesis which it has not opened cannot be read here, where none
    // is open. WHERE takes neither sets nor aggregates nor window functions. As a query with
    // parameters, of which the server takes one at a time.
    let alone = format!("SELECT FROM {table} t WHERE CASE WHEN true THEN {expression}\n END IS NULL LIMIT 0");
    connection.query(&alone, &[])?;
    connection.query(&format!("SELECT ({expression}) FROM {table} t LIMIT 0"), &[])?;
    connection.run("BEGIN")?;
    let made_of = made_of(connection, table, expression);
    connection.run("ROLLBACK")?;
    made_of
}

fn made_of(
    connection: &mut Connection,
    table: &str,
    expression: &str,
) -> std::result::Result<Option<String>, RemoteError> {
    let view = format!(
        "CREATE TEMPORARY VIEW shardmaster_expression AS SELECT ({expression}) AS computed FROM {table} t"
    );
    connection.query(&view, &[])?;
    if let Some(what) = connection.run(MADE_OF)?.scalar() {
        return Ok(Some(format!("{what} is no function of the row")));
    }
    unbound(connection)
}

/// A function that finds what it names by the search_path: the mover's is another one than
/// that of whoever has written it.
fn unbound(connection: &mut Connection) -> std::result::Result<Option<String>, RemoteError> {
    for row in connection.run(FUNCTIONS)?.rows {
        let [Some(function), to_try] = row.as_slice() else { continue };
        let Some(number) = to_try else {
            return Ok(Some(format!(
                "{function} has no SET search_path, and finds what it names by its caller's"
            )));
        };
        match connection.query("SELECT fmgr_sql_validator($1)", &[Some(number)]) {
            Ok(_) => {}
            Err(error) if error.sqlstate.is_some() => {
                let message = error.message;
                return Ok(Some(format!(
                    "{function} has no SET search_path, and does not work under the mover's: {message}"
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
