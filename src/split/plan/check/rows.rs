//! Rows of the scope where none must be, and rows that stay: checks that read the tables themselves.

use crate::agent::error::Result;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::Plan;
use crate::remote::quote::ident;
use crate::remote::{Connection, RemoteError, number, result};
use crate::split::finding::Finding;

/// A table, and its shard-by column.
#[derive(Clone, Copy)]
pub struct ScopeTable<'a> {
    pub shape: &'a TableShape,
    pub column: &'a Column,
}

/// Which rows are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowsOf {
    /// Rows of the keys on the target, which must have none yet.
    None,
    /// Rows on a source from which everything is to move: rows of keys that are not routed to it, or without a key.
    Staying,
}

/// The number up to which staying rows are counted.
const COUNTED: i64 = 1000;
/// The number of tables that are read in one query.
const MOST_TABLES: usize = 100;

impl RowsOf {
    /// Returns a finding for each of the tables. They are read together; if that fails, one by one, so that it is
    /// known which of them the error belongs to.
    pub fn look(
        self,
        plan: &Plan,
        connection: &mut Connection,
        tables: &[ScopeTable<'_>],
    ) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for some in tables.chunks(MOST_TABLES) {
            match look_through_all(plan, connection, some, |shape, column, rows| {
                self.query(shape, column, rows)
            }) {
                Ok(answers) => {
                    for (of, cells) in some.iter().zip(answers) {
                        findings.push(self.finding(connection, *of, &cells)?);
                    }
                }
                Err(error) if error.is_verdict() => {
                    for of in some {
                        findings.push(self.look_at_one(plan, connection, *of)?);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(findings)
    }

    fn look_at_one(self, plan: &Plan, connection: &mut Connection, of: ScopeTable<'_>) -> Result<Finding> {
        let found =
            look_through_all(plan, connection, &[of], |shape, column, rows| self.query(shape, column, rows));
        match found {
            Ok(answers) => self.finding(connection, of, answers.first().map_or(&[], Vec::as_slice)),
            Err(error) if error.is("42501") => {
                Ok(Finding::new(self.name(), false, error.message, "Grant the table's owner to the mover."))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            RowsOf::None => "target: no rows of the keys yet",
            RowsOf::Staying => "source: rows that stay",
        }
    }

    /// Returns a query of three columns.
    fn query(self, shape: &TableShape, column: &Column, predicate: &str) -> String {
        let (column, table) = (ident(&column.name), &shape.name);
        match self {
            RowsOf::None => {
                format!("SELECT NULL::bigint, NULL::bigint, t.{column}::text FROM {table} t WHERE {predicate} LIMIT 1")
            }
            RowsOf::Staying => format!(
                "SELECT count(*) - count(s.key), count(s.key), min(s.key)
                   FROM (SELECT t.{column}::text AS key FROM {table} t WHERE ({predicate}) IS NOT TRUE LIMIT {}) s",
                COUNTED + 1
            ),
        }
    }

    fn finding(
        self,
        connection: &Connection,
        of: ScopeTable<'_>,
        cells: &[Option<String>],
    ) -> Result<Finding> {
        let cell = |at: usize| cells.get(at).and_then(Option::as_deref);
        match self {
            RowsOf::None => Ok(none_yet(of.shape, cell(2))),
            RowsOf::Staying => {
                let count = |at: usize| number::count(connection.shard(), "the number of rows", cell(at));
                Ok(staying(of.shape, count(0)?, count(1)?, cell(2)))
            }
        }
    }
}

fn none_yet(shape: &TableShape, key: Option<&str>) -> Finding {
    let name = RowsOf::None.name();
    match key {
        None => Finding::new(name, true, shape.name.clone(), ""),
        Some(key) => Finding::new(
            name,
            false,
            format!("{} holds rows of key \"{key}\"", shape.name),
            "If they are the key's own rows, roll this plan back and assign the key to this shard. Otherwise delete them.",
        ),
    }
}

fn staying(shape: &TableShape, without: i64, others: i64, example: Option<&str>) -> Finding {
    let name = RowsOf::Staying.name();
    if without + others == 0 {
        return Finding::new(name, true, format!("{}: none", shape.name), "");
    }
    let mut kinds = Vec::new();
    if without > 0 {
        kinds.push(format!("{without} without a key"));
    }
    if others > 0 {
        let example = example.unwrap_or_default();
        kinds.push(format!("{others} of keys that are not in the plan, such as \"{example}\""));
    }
    let seen = if without + others > COUNTED { "at least " } else { "" };
    let hint = "They are not moved and not deleted. To move a key with the others, plan again with it. A key without a route must be assigned to the source first.";
    Finding::note(name, format!("{}: {seen}{}", shape.name, kinds.join(", ")), hint)
}

/// Reads tables with the scope's condition, without a time limit, each by a query that gives at most one row. Returns
/// that row of each of them.
fn look_through_all(
    plan: &Plan,
    connection: &mut Connection,
    tables: &[ScopeTable<'_>],
    query: impl Fn(&TableShape, &Column, &str) -> String,
) -> std::result::Result<Vec<Vec<Option<String>>>, RemoteError> {
    let mut answers = vec![Vec::new(); tables.len()];
    let Some(first) = tables.first() else { return Ok(answers) };
    let of_each = |(number, ScopeTable { shape, column }): (usize, &ScopeTable<'_>)| {
        let (_, predicate) = plan.scope.dry_predicate(column, "t");
        format!("(SELECT {number}, q.* FROM ({}) q)", query(shape, column, &predicate))
    };
    let queries: Vec<String> = tables.iter().enumerate().map(of_each).collect();
    let found = look_through(plan, connection, first.shape, first.column, |_| queries.join(" UNION ALL "))?;
    for row in found.rows {
        let mut cells = row.into_iter();
        let number = cells.next().flatten().and_then(|number| number.parse::<usize>().ok());
        if let Some(answer) = number.and_then(|number| answers.get_mut(number)) {
            *answer = cells.collect();
        }
    }
    Ok(answers)
}

/// Reads a table with the scope's condition, without a time limit.
pub(super) fn look_through(
    plan: &Plan,
    connection: &mut Connection,
    shape: &TableShape,
    column: &Column,
    query: impl Fn(&str) -> String,
) -> std::result::Result<result::Rows, RemoteError> {
    let (functions, predicate) = plan.scope.dry_predicate(column, "t");
    connection.undone(|connection| {
        // This is sent separately, so that pg_stat_activity shows the query of the table.
        connection.run(&functions)?;
        connection
            .run_unbounded(&query(&predicate))
            .map_err(|error| error.asked(&format!("rows by their keys in {}", shape.name)))
    })
}
