//! Functions that a side calls in the mover's sessions: the target for each row that it inserts, in CHECK constraints,
//! indexes, generated columns and defaults; both sides when they plan a query over an index. A function whose body is
//! a text finds its names by the search_path: with the mover's it may fail, or mean something else.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Observation;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::finding::Finding;

const FUNCTIONS: &str = include_str!("../../../../sql/check/functions.sql");

/// A function that is not known to work, and what calls it.
pub struct Called {
    position: usize,
    text: String,
    function: String,
    /// The column whose default it is.
    default_of: Option<String>,
}

impl Called {
    /// Whether it affects every query over the table.
    pub fn is_in_the_way(&self) -> bool {
        self.default_of.is_none()
    }

    pub fn finding(&self, side: Side) -> Finding {
        Finding::new(
            &format!("{}: functions without search_path", side.as_str()),
            false,
            self.text.clone(),
            &format!(
                "The mover's search_path is pg_catalog. Set the function's own, with the schemas that it needs: ALTER FUNCTION {} SET search_path = ...",
                self.function
            ),
        )
    }
}

/// Whether it is called: a default counts only for a column that nothing fills.
pub fn is_called(plan: &Plan, source: &Observation, called: &Called) -> bool {
    let Some(column) = &called.default_of else { return true };
    let map = plan.tables.get(called.position).and_then(|p| p.maps.iter().find(|map| map.column == *column));
    let is_there = || source.tables.get(called.position).is_some_and(|shape| shape.column(column).is_some());
    !map.map_or_else(is_there, |map| map.expression.is_some())
}

pub fn find(plan: &Plan, side: Side, connection: &mut Connection) -> Result<Vec<Called>> {
    let [schemas, names] = TableNames::of(plan, side).lists();
    let is_target = (side == Side::Target).to_string();
    let rows = catalogs::ask(connection, FUNCTIONS, &catalogs::given(&[schemas, names, is_target]))?;
    let mut found = Vec::new();
    for row in &rows.rows {
        let [Some(position), Some(what), Some(function), default_of, to_try, Some(is_shown)] = row.as_slice()
        else {
            continue;
        };
        let Some(position) = position.parse().ok() else { continue };
        let failure = to_try.as_deref().map(|number| failure(connection, number)).transpose()?.flatten();
        let problem = match failure {
            Some(message) => format!("does not work under the mover's search_path: {message}"),
            None if is_shown == "t" => continue,
            None => "finds its names by the search_path of its caller".to_owned(),
        };
        let text = format!("{what} calls {function}, which {problem}");
        found.push(Called { position, text, function: function.clone(), default_of: default_of.clone() });
    }
    Ok(found)
}

/// Returns why the names in a body of SQL are not found, or None if they are.
fn failure(connection: &mut Connection, function: &str) -> Result<Option<String>> {
    match connection.undone(|connection| connection.query("SELECT fmgr_sql_validator($1)", &[Some(function)]))
    {
        Ok(_) => Ok(None),
        Err(error) if error.is_verdict() => Ok(Some(error.message)),
        Err(error) => Err(error.into()),
    }
}
