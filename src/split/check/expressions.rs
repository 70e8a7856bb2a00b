//! What shard_split_map() says must be a function of one row of the source: the copy, every
//! change and every comparison computes it again, and must come to the same.

use super::Finding;
use crate::catalog::split::Plan;
use crate::remote::{Connection, RemoteError};
use crate::split::error::Result;
use crate::split::shape::Observation;

const MADE_OF: &str = include_str!("../../../sql/check/expression.sql");

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
                Ok(made_of) => made_of.map(|what| format!("{what} is no function of the row")),
                Err(error) if error.sqlstate.is_some() => Some(error.message),
                Err(error) => return Err(error.into()),
            };
            findings.push(Finding::new(
                "source: computed columns",
                problem.is_none(),
                problem.map_or(detail.clone(), |problem| format!("{detail}: {problem}")),
                "Say it again with shard_split_map(), as one SQL expression over one row of the source, \
                 of functions that are IMMUTABLE or STABLE.",
            ));
        }
    }
    Ok(())
}

/// What the expression is made of and must not be.
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
    Ok(connection.run(MADE_OF)?.scalar().map(str::to_owned))
}
