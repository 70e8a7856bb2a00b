//! Windows of few rows: keys and rows are read at once, and sent to the target in one message, as values. So the
//! duration of a step does not grow with the number of tables that have changed.
//!
//! A value in a statement is read by its type's own input function, like a value of a COPY in text form. To the
//! target, everything from the source is text, whatever it contains.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Column;
use crate::catalog::split::Plan;
use crate::remote::RemoteError;
use crate::remote::copy::Bounds;
use crate::remote::gather::{Gathered, gather};
use crate::remote::quote::literal;
use crate::split::copy::collision;
use crate::split::copy::scope_filter::{OutOfScope, explain};
use crate::split::copy::text_rows::{self, Cells};
use crate::split::engine::{Engine, StepMode};
use crate::split::table::SplitTable;
use crate::split::table::columns::ColumnSource;
use std::borrow::Cow;

/// The greatest number of changed keys of all tables in a message.
const MOST_ROWS: i64 = 500;
/// The limit while writers wait: over a slow connection this many have changed since the last step, and each further
/// query costs writers a round trip.
const MOST_FENCED: i64 = 4 * MOST_ROWS;
/// The greatest number of bytes of their keys and rows.
const MOST_BYTES: usize = 256 << 10;
/// The greatest number of bytes of a table's rows as they are stored, checked before any of them is read: compressed
/// data may be some two hundred times longer when read, and a bytea value is twice as long as text.
const MOST_STORED: u32 = 32 << 10;

/// The round trips that the target waits for: to the source, and for its own statements.
pub const ROUND_TRIPS: u32 = 2;

/// Whether this many changed rows may be sent as values; `apply` checks the bytes of what has changed.
pub fn are(rows: i64, mode: StepMode) -> bool {
    rows <= if mode.is_last() { MOST_FENCED } else { MOST_ROWS }
}

/// The queries that read a table's window on the source.
pub struct Queries {
    /// The table, by position.
    pub of: usize,
    pub keys: String,
    pub rows: String,
    /// The rows behind the size of all of them; for long rows only the size is returned.
    pub short_rows: String,
}

/// The number of COPYs of each table.
const OF_EACH: usize = 2;

impl Queries {
    /// Returns the queries as COPYs of one message.
    fn copies(&self) -> [String; OF_EACH] {
        [&self.keys, &self.short_rows].map(|query| format!("COPY ({query}) TO STDOUT (FORMAT text)"))
    }
}

/// Returns a query for rows of a table, each behind the stored bytes of all of them. If these are too many, nothing
/// else is returned, and values stored out of line are not read.
pub fn short_rows(table: &SplitTable, from: &str) -> String {
    let columns: Vec<String> = (1..=table.pairs.len()).map(|number| format!("c{number}")).collect();
    let given: Vec<String> =
        columns.iter().map(|column| format!("CASE WHEN size <= {MOST_STORED} THEN {column} END")).collect();
    format!(
        "SELECT size, {} FROM (SELECT sum({}) OVER (), {} FROM {from}) r (size, {})",
        given.join(", "),
        table.stored_size(),
        table.select_list(),
        columns.join(", "),
    )
}

/// Whether the rows were short enough to be returned.
fn are_short(rows: &[Cells]) -> bool {
    let is_short = |size: &str| size.parse::<u64>().is_ok_and(|bytes| bytes <= u64::from(MOST_STORED));
    rows.iter().all(|row| row.first().and_then(Option::as_deref).is_some_and(is_short))
}

/// Whether the rows of a table can be copied in this way: each column as its type writes it, with a readable key.
pub fn is_for(table: &SplitTable) -> bool {
    let is_plain = table.pairs.iter().all(|pair| matches!(pair.source, ColumnSource::Column(_)));
    is_plain && table.text_matcher.is_some() && !table.has_long_rows && !has_domain_of_its_own(table)
}

/// Whether the target has a column of a domain that nothing fills: COPY does not check it, an INSERT checks it for
/// NULL.
fn has_domain_of_its_own(table: &SplitTable) -> bool {
    let is_filled = |column: &Column| table.pairs.iter().any(|pair| pair.target == column.name);
    table.target.columns().iter().any(|column| {
        column.is_of_domain() && column.generated.is_none() && !column.has_default && !is_filled(column)
    })
}

/// Copies the rows and returns the number of changed keys of each table. Returns None if they are too large for this,
/// and nothing has been done.
pub fn apply(engine: &mut Engine, queries: &[Queries]) -> Result<Option<Vec<u64>>> {
    if queries.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let outs: Vec<String> = queries.iter().flat_map(Queries::copies).collect();
    // If one table has too much, it is known once that table is read alone.
    let all = u64::try_from(queries.len()).unwrap_or(u64::MAX);
    let bytes = engine.mode.most_bytes().map(|limit| limit.saturating_mul(all));
    let bounds = Bounds { bytes, ..Bounds::unlimited() };
    let read =
        gather(&mut engine.sessions.reader, &outs, MOST_BYTES, bounds).map_err(|(number, error)| {
            collision::explain_of(
                &engine.tenure.plan,
                &engine.tables[queries[number / OF_EACH].of],
                engine.mode,
                error,
            )
        })?;
    let read = match read {
        Gathered::All(read) => read,
        Gathered::TooMuch(sizes) => {
            // One of the tables has more than its share.
            for (query, sizes) in queries.iter().zip(sizes.chunks(OF_EACH)) {
                engine.tables[query.of].has_long_rows |=
                    sizes.iter().sum::<usize>() > MOST_BYTES / queries.len();
            }
            return Ok(None);
        }
    };
    let mut windows = Vec::new();
    for (query, texts) in queries.iter().zip(read.chunks(OF_EACH)) {
        let table = &mut engine.tables[query.of];
        let window = Window::read(table, texts)
            .ok_or_else(|| out_of_scope(OutOfScope::Unreadable, &engine.tenure.plan, table))?;
        table.has_long_rows |= !are_short(&window.rows);
        windows.push((query.of, window));
    }
    if windows.iter().any(|(of, _)| engine.tables[*of].has_long_rows) {
        return Ok(None);
    }
    let mut message = Message::default();
    let mut changed = Vec::new();
    for (of, window) in windows {
        let (table, is_watched) = (&engine.tables[of], engine.seen.watched.is_from(of));
        changed.push(message.add(&engine.tenure.plan, table, of, is_watched, &window)?);
    }
    message.run(engine)?;
    Ok(Some(changed))
}

/// What the source has returned for a table: keys, and rows, each behind their size.
struct Window<'a> {
    keys: Vec<Cells<'a>>,
    rows: Vec<Cells<'a>>,
}

impl<'a> Window<'a> {
    /// Returns None if it cannot be read.
    fn read(table: &SplitTable, texts: &'a [Vec<u8>]) -> Option<Window<'a>> {
        let [keys, rows] = texts else { return None };
        Some(Window {
            keys: text_rows::read(keys, table.source.key().len())?,
            rows: text_rows::read(rows, table.pairs.len() + 1)?,
        })
    }
}

/// Statements for the target, each with its table and, if known, the number of rows it writes.
#[derive(Default)]
struct Message {
    statements: Vec<(usize, String, Option<u64>)>,
}

impl Message {
    /// Adds the statements that replace the changed rows of a table, and returns the number of keys. If the table is
    /// watched, its rows are checked once more by these keys, in the table that has those of other windows.
    fn add(
        &mut self,
        plan: &Plan,
        table: &SplitTable,
        position: usize,
        is_watched: bool,
        Window { keys, rows }: &Window<'_>,
    ) -> Result<u64> {
        require_in_scope(plan, table, rows)?;
        let count = |rows: &[Cells]| u64::try_from(rows.len()).unwrap_or(u64::MAX);
        if !keys.is_empty() {
            if is_watched {
                let window = table.window_table();
                let into = format!("INSERT INTO {window} VALUES {}", values(keys, 0, &[]));
                self.statements.push((position, into, Some(count(keys))));
                self.statements.push((position, format!("ANALYZE {window}"), None));
            }
            let delete = table.delete_listed(&plan.scope, &values(keys, 0, &table.key_types()));
            self.statements.push((position, delete, None));
        }
        if !rows.is_empty() {
            let into = format!(
                "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES {}",
                table.target.name,
                table.target_columns(),
                values(rows, 1, &[])
            );
            self.statements.push((position, into, Some(count(rows))));
        }
        Ok(count(keys))
    }

    fn run(self, engine: &mut Engine) -> Result<()> {
        if self.statements.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = self.statements.iter().map(|(_, text, _)| text.as_str()).collect();
        // The limit is that of a COPY of the same rows: indexes, constraints and columns of the target need time.
        let done = engine.sessions.target.run_counted(&texts, Bounds::unlimited().stall);
        let affected = done.map_err(|(number, error)| {
            let position = self.statements.get(number).map_or(0, |(position, ..)| *position);
            collision::explain_of(&engine.tenure.plan, &engine.tables[position], engine.mode, error)
        })?;
        for ((position, _, wanted), affected) in self.statements.iter().zip(affected) {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != affected) {
                let text = format!("{wanted} rows were sent and {affected} arrived");
                return Err(collision::explain_of(
                    &engine.tenure.plan,
                    &engine.tables[*position],
                    engine.mode,
                    RemoteError::of_data(engine.sessions.target.shard(), text),
                ));
            }
        }
        Ok(())
    }
}

/// Refuses rows of other keys, which must not reach the target, whatever the source returns. A size precedes each row.
fn require_in_scope(plan: &Plan, table: &SplitTable, rows: &[Cells]) -> Result<()> {
    let Some(matcher) = &table.text_matcher else {
        return Err(out_of_scope(OutOfScope::Unreadable, plan, table));
    };
    for row in rows {
        match row.get(matcher.position() + 1).map(Option::as_deref) {
            Some(Some(key)) if matcher.holds_text(key) => {}
            Some(Some(key)) => {
                return Err(out_of_scope(OutOfScope::Key(key.chars().take(100).collect()), plan, table));
            }
            Some(None) => return Err(out_of_scope(OutOfScope::Null, plan, table)),
            None => return Err(out_of_scope(OutOfScope::Unreadable, plan, table)),
        }
    }
    Ok(())
}

fn out_of_scope(out_of_scope: OutOfScope, plan: &Plan, table: &SplitTable) -> SplitError {
    explain(out_of_scope, plan, &table.target.name).into()
}

/// Returns the rows as a list of values, without the first cells of each row. The first row has casts to the types, if
/// the values do not fill typed columns.
fn values(rows: &[Cells], without: usize, types: &[&str]) -> String {
    let cell = |cell: &Option<Cow<'_, str>>| cell.as_deref().map_or_else(|| "NULL".to_owned(), literal);
    let row = |(number, row): (usize, &Cells<'_>)| {
        let cells = row.iter().skip(without).enumerate();
        let cells = cells.map(|(at, text)| match types.get(at).filter(|_| number == 0) {
            Some(of) => format!("{}::{of}", cell(text)),
            None => cell(text),
        });
        format!("({})", cells.collect::<Vec<_>>().join(", "))
    };
    rows.iter().enumerate().map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_source_gives_is_text_to_the_target() {
        let rows = text_rows::read(b"a'b\t\\N\n'); DROP TABLE t; --\t\\\\\n", 2).unwrap();
        assert_eq!(values(&rows, 0, &[]), r"('a''b', NULL), ('''); DROP TABLE t; --', E'\\')");
        assert_eq!(values(&rows, 1, &["public.own"]), r"(NULL::public.own), (E'\\')");
    }
}
