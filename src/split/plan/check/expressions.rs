//! An expression of shard_split_map() must be a function of one row of the source: the copy, every change and every
//! comparison computes it again, and must get the same result.

use crate::agent::error::{Result, SplitError};
use crate::agent::named::NamedThings;
use crate::agent::plain;
use crate::agent::shape::Observation;
use crate::agent::table_names::TableNames;
use crate::agent::untrusted_code::{self, Code};
use crate::catalog::split::Plan;
use crate::remote::{Connection, RemoteError};
use crate::split::finding::Finding;

const MADE_OF: &str = include_str!("../../../../sql/check/expression.sql");
const FUNCTIONS: &str = include_str!("../../../../sql/check/expression_functions.sql");
/// The view that an expression is read as: the server keeps it parsed.
const VIEW: &str = "shardmaster_expression";
/// If names are not found, their meaning cannot be checked.
const UNREAD: &str = "syntax error, or something that is not accepted here: a comment, a semicolon, a dollar-quoted text or two texts side by side, U&'..', B'..' or the like, or a name in a schema with non-ASCII letters and without double quotes";

/// Checks that the source can compute what is mapped. Returns whether it can.
pub fn check(
    plan: &Plan,
    connection: &mut Connection,
    observation: &Observation,
    findings: &mut Vec<Finding>,
) -> Result<bool> {
    let mut is_well = true;
    for (policy, shape) in plan.tables.iter().zip(&observation.tables) {
        for map in &policy.maps {
            let (Some(expression), Some(_)) = (&map.expression, &shape.oid) else { continue };
            let detail = format!("{}: column \"{}\": {expression}", shape.name, map.column);
            let asked = connection
                .undone(|connection| problem(connection, &shape.name, expression, &plan.trusted[0]));
            let problem = match asked {
                Ok(problem) => problem,
                Err(SplitError::Remote(error)) if error.sqlstate.is_some() => Some(error.message),
                Err(error) => return Err(error),
            };
            is_well &= problem.is_none();
            findings.push(Finding::new(
                "source: computed columns",
                problem.is_none(),
                problem.map_or(detail.clone(), |problem| format!("{detail}: {problem}")),
                "Set it again with shard_split_map(), as one SQL expression over one row of the source. Its functions must be IMMUTABLE or STABLE and, if they are not plain SQL, have SET search_path.",
            ));
        }
    }
    Ok(is_well)
}

/// Returns what is wrong with an expression that the server can compute.
fn problem(
    connection: &mut Connection,
    table: &str,
    expression: &str,
    trusted: &[String],
) -> Result<Option<String>> {
    // The names in it have been checked before: reading a constant of a type runs code, too.
    if plain::qualified(expression).is_none() {
        return Ok(Some(UNREAD.to_owned()));
    }
    // Tables and views that a query within it reads are not checked.
    if plain::has_query(expression) {
        return Ok(Some("a sub-select is not a function of the row".to_owned()));
    }
    // This comes before it is planned, which runs functions of constants.
    if let Some(code) = code_of_others(connection, table, expression, trusted)? {
        return Ok(Some(code));
    }
    connection.query(&format!("{} LIMIT 0", alone(table, expression)), &[])?;
    connection.query(&format!("SELECT ({expression}) FROM {table} t LIMIT 0"), &[])?;
    Ok(connection.undone(|connection| made_of(connection, table, expression))?)
}

/// Returns a function whose owner is not trusted with the mover's rights.
fn code_of_others(
    connection: &mut Connection,
    table: &str,
    expression: &str,
    trusted: &[String],
) -> Result<Option<String>> {
    let view = format!("CREATE TEMPORARY VIEW {VIEW} AS {}", alone(table, expression));
    connection.undone(|connection| {
        connection.query(&view, &[])?;
        code_of_view(connection, trusted)
    })
}

fn code_of_view(connection: &mut Connection, trusted: &[String]) -> Result<Option<String>> {
    let schema = connection.run("SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()")?;
    let view = TableNames::one(schema.scalar().unwrap_or_default(), VIEW);
    let found = untrusted_code::find_in(connection, &view, trusted, &NamedThings::none())?;
    let named = connection.query(
        "SELECT p.oid::regprocedure
           FROM pg_rewrite w CROSS JOIN regexp_matches(w.ev_action::text, ':(?:op)?funcid (\\d+)', 'g') found
           JOIN pg_proc p ON p.oid = found[1]::oid
          WHERE w.ev_class = $1::regclass AND p.oid < 16384 AND p.provolatile = 's' AND p.proname !~ $2 LIMIT 1",
        &[Some(&format!("pg_temp.{VIEW}")), Some(untrusted_code::HARMLESS)],
    )?;
    let of_owner = found.code.first().map(Code::text);
    Ok(of_owner
        .or_else(|| named.scalar().map(|name| format!("{name} may depend on more than its arguments"))))
}

/// Returns a query that contains the expression on its own: an expression that closes a parenthesis which it has not
/// opened cannot be read here, where none is open. WHERE accepts neither sets nor aggregates nor window functions. The
/// query is sent with parameters, as a message of which the server accepts only one statement.
fn alone(table: &str, expression: &str) -> String {
    format!("SELECT FROM {table} t WHERE CASE WHEN true THEN {expression}\n END IS NULL")
}

fn made_of(
    connection: &mut Connection,
    table: &str,
    expression: &str,
) -> std::result::Result<Option<String>, RemoteError> {
    let view = format!("CREATE TEMPORARY VIEW {VIEW} AS SELECT ({expression}) AS computed FROM {table} t");
    connection.query(&view, &[])?;
    if let Some(what) = connection.run(MADE_OF)?.scalar() {
        return Ok(Some(format!("{what} is not a function of the row")));
    }
    unbound(connection)
}

/// Finds a function that finds its names by the search_path: the mover's differs from that of the function's author.
fn unbound(connection: &mut Connection) -> std::result::Result<Option<String>, RemoteError> {
    for row in connection.run(FUNCTIONS)?.rows {
        let [Some(function), to_try] = row.as_slice() else { continue };
        let Some(number) = to_try else {
            return Ok(Some(format!(
                "{function} has no SET search_path, and finds its names by the caller's"
            )));
        };
        match connection.query("SELECT fmgr_sql_validator($1)", &[Some(number)]) {
            Ok(_) => {}
            Err(error) if error.is_verdict() => {
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
