//! Windows of few rows: keys and rows are read at once, and the target is told all of it in one message, as values. So what
//! a step waits for does not grow with the number of tables that have changed.
//!
//! A value in a statement is read by its type's own input, as one in a COPY in text form is. What the source gives is text
//! to the target, whatever it holds.

use super::collision;
use super::sieve::{Stray, explain};
use super::text_rows::{self, Cells};
use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Column;
use crate::catalog::split::Plan;
use crate::remote::RemoteError;
use crate::remote::copy::Bounds;
use crate::remote::gather::{Gathered, gather};
use crate::remote::quote::literal;
use crate::split::engine::Engine;
use crate::split::table::Table;
use crate::split::table::columns::Source;
use std::borrow::Cow;

/// Changed keys of all tables of a message.
pub const MOST_ROWS: i64 = 500;
/// Bytes of their keys and rows.
const MOST_BYTES: usize = 256 << 10;
/// Bytes of a table's rows as they are stored, before any of them is read: what is compressed may be longer by some two
/// hundred times, and a value of bytes is twice as long as a text.
const MOST_STORED: u32 = 32 << 10;

/// What the target waits for: the source, and its own statements.
pub const ROUND_TRIPS: u32 = 2;

/// What is read of a table's window on the source, as queries.
pub struct Queries {
    /// The table, by position.
    pub of: usize,
    pub keys: String,
    pub rows: String,
    /// How many bytes these rows are stored in.
    pub stored: String,
}

impl Queries {
    /// As COPYs of one message: the rows only if they are short, which the second one tells.
    fn copies(&self) -> [String; OF_EACH] {
        let Queries { keys, rows, stored, .. } = self;
        [
            format!("COPY ({keys}) TO STDOUT (FORMAT text)"),
            format!("COPY ({stored}) TO STDOUT (FORMAT text)"),
            format!("COPY ({rows} AND ({stored}) <= {MOST_STORED}) TO STDOUT (FORMAT text)"),
        ]
    }
}

/// COPYs of each table.
const OF_EACH: usize = 3;

/// Whether the rows were short enough to be given.
fn are_short(stored: &[u8]) -> bool {
    let bytes = std::str::from_utf8(stored).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
    bytes.is_some_and(|bytes| bytes <= u64::from(MOST_STORED))
}

/// Whether the rows of a table can come over in this way: each column as its type writes it, and the key in sight.
pub fn is_for(table: &Table) -> bool {
    let is_plain = table.pairs.iter().all(|pair| matches!(pair.source, Source::Column(_)));
    is_plain && table.text_mesh.is_some() && !table.has_long_rows && !has_domain_of_its_own(table)
}

/// Whether the target has a domain that nothing fills: COPY asks it nothing, an INSERT asks it for NULL.
fn has_domain_of_its_own(table: &Table) -> bool {
    let is_filled = |column: &Column| table.pairs.iter().any(|pair| pair.target == column.name);
    table.target.columns().iter().any(|column| {
        column.is_of_domain() && column.generated.is_none() && !column.has_default && !is_filled(column)
    })
}

/// Brings them over; the changed keys of each table. None: they are too large for it, and nothing has been done.
pub fn apply(engine: &mut Engine, queries: &[Queries]) -> Result<Option<Vec<u64>>> {
    if queries.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let outs: Vec<String> = queries.iter().flat_map(Queries::copies).collect();
    // What is too much of one table is known once it comes by itself.
    let all = u64::try_from(queries.len()).unwrap_or(u64::MAX);
    let bytes = engine.window_limit.map(|limit| limit.saturating_mul(all));
    let bounds = Bounds { bytes, ..Bounds::unlimited() };
    let read = gather(&mut engine.reader, &outs, (MOST_BYTES, bounds))
        .map_err(|(number, error)| collision::explain_of(engine, queries[number / OF_EACH].of, error))?;
    let read = match read {
        Gathered::All(read) => read,
        Gathered::TooMuch(sizes) => {
            // One of them has more than its share.
            for (query, sizes) in queries.iter().zip(sizes.chunks(OF_EACH)) {
                engine.tables[query.of].has_long_rows |=
                    sizes.iter().sum::<usize>() > MOST_BYTES / queries.len();
            }
            return Ok(None);
        }
    };
    let mut all_are_short = true;
    for (query, texts) in queries.iter().zip(read.chunks(OF_EACH)) {
        if !texts.get(1).is_some_and(|stored| are_short(stored)) {
            engine.tables[query.of].has_long_rows = true;
            all_are_short = false;
        }
    }
    if !all_are_short {
        return Ok(None);
    }
    let mut message = Message::default();
    let mut changed = Vec::new();
    for (query, texts) in queries.iter().zip(read.chunks(OF_EACH)) {
        let [keys, _, rows] = texts else { return Ok(None) };
        let table = &engine.tables[query.of];
        changed.push(message.add(&engine.plan, table, query.of, [keys, rows])?);
    }
    message.run(engine)?;
    Ok(Some(changed))
}

/// Statements for the target, each with the table that it is of, and how many rows it writes if that is known.
#[derive(Default)]
struct Message {
    statements: Vec<(usize, String, Option<u64>)>,
}

impl Message {
    /// What replaces the changed rows of a table; how many keys that are.
    fn add(&mut self, plan: &Plan, table: &Table, position: usize, [keys, rows]: [&[u8]; 2]) -> Result<u64> {
        let unreadable = || stray(Stray::Unreadable, plan, table);
        let keys = text_rows::read(keys, table.source.key().len()).ok_or_else(unreadable)?;
        let rows = text_rows::read(rows, table.pairs.len()).ok_or_else(unreadable)?;
        require_in_scope(plan, table, &rows)?;
        let count = |rows: &[Cells]| u64::try_from(rows.len()).unwrap_or(u64::MAX);
        if !keys.is_empty() {
            let into = format!("INSERT INTO {} VALUES {}", table.window_table(), values(&keys));
            self.statements.push((position, into, Some(count(&keys))));
            for statement in table.delete_changed(&plan.scope) {
                self.statements.push((position, statement, None));
            }
        }
        if !rows.is_empty() {
            let into = format!(
                "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES {}",
                table.target.name,
                table.target_columns(),
                values(&rows)
            );
            self.statements.push((position, into, Some(count(&rows))));
        }
        Ok(count(&keys))
    }

    fn run(self, engine: &mut Engine) -> Result<()> {
        if self.statements.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = self.statements.iter().map(|(_, text, _)| text.as_str()).collect();
        // As long as a COPY of the same rows has: indexes, constraints and columns of the target take their time.
        let done = engine.target.run_counted(&texts, Bounds::unlimited().stall);
        let affected = done.map_err(|(number, error)| {
            let position = self.statements.get(number).map_or(0, |(position, ..)| *position);
            collision::explain_of(engine, position, error)
        })?;
        for ((position, _, wanted), affected) in self.statements.iter().zip(affected) {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != affected) {
                let text = format!("{wanted} rows were sent and {affected} arrived");
                return Err(collision::explain_of(
                    engine,
                    *position,
                    RemoteError::of_data(engine.target.shard(), text),
                ));
            }
        }
        Ok(())
    }
}

/// Rows of other keys never come to the target, whatever the source gives.
fn require_in_scope(plan: &Plan, table: &Table, rows: &[Cells]) -> Result<()> {
    let Some(mesh) = &table.text_mesh else { return Err(stray(Stray::Unreadable, plan, table)) };
    for row in rows {
        match row.get(mesh.position()).map(Option::as_deref) {
            Some(Some(key)) if mesh.holds_text(key) => {}
            Some(Some(key)) => return Err(stray(Stray::Key(key.chars().take(100).collect()), plan, table)),
            Some(None) => return Err(stray(Stray::Null, plan, table)),
            None => return Err(stray(Stray::Unreadable, plan, table)),
        }
    }
    Ok(())
}

fn stray(stray: Stray, plan: &Plan, table: &Table) -> SplitError {
    explain(stray, plan, &table.target.name).into()
}

fn values(rows: &[Cells]) -> String {
    let cell = |cell: &Option<Cow<'_, str>>| cell.as_deref().map_or_else(|| "NULL".to_owned(), literal);
    let row = |row: &Cells<'_>| format!("({})", row.iter().map(cell).collect::<Vec<_>>().join(", "));
    rows.iter().map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_source_gives_is_text_to_the_target() {
        let rows = text_rows::read(b"a'b\t\\N\n'); DROP TABLE t; --\t\\\\\n", 2).unwrap();
        assert_eq!(values(&rows), r"('a''b', NULL), ('''); DROP TABLE t; --', '\')");
    }
}
