//! The proof for the few rows of several tables at once: keys and checksums are sent as values of one statement per
//! table, and all of these in one message. What is not shown here is shown, or refused, by the proof of the table
//! alone.

use crate::agent::error::{Result, SplitError};
use crate::agent::seen::SeenTables;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::agent::state::progress::CopyProgress;
use crate::agent::state::queue;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::copy::Bounds;
use crate::remote::quote::{array_of, ident, literal};
use crate::remote::result::Rows;
use crate::split::end::proof::is_missing;
use crate::split::end::purge::small_batch::{self, FEW_ROWS, RowProof, RowsToDelete};
use crate::split::table::SplitTable;
use crate::split::untrusted_code;
use crate::split::verify::changes::Changes;
use crate::split::verify::{key, rows};
use std::collections::BTreeMap;

/// The greatest number of bytes of the keys of all tables, as texts.
const MOST_BYTES: usize = 4 << 20;

/// Types whose values are read back as they were written, by the server's own functions.
const PLAIN: [&str; 11] = [
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "text",
    "character varying",
    "uuid",
    "boolean",
    "date",
    "timestamp without time zone",
    "timestamp with time zone",
];

/// What the target has to show of some tables.
pub struct BatchProof<'a> {
    target: &'a mut Connection,
    plan: &'a Plan,
    tables: &'a [SplitTable],
    progress: &'a CopyProgress,
}

impl<'a> BatchProof<'a> {
    /// Returns the proof by the target's session.
    pub fn by(
        plan: &'a Plan,
        target: &'a mut Connection,
        tables: &'a [SplitTable],
        progress: &'a CopyProgress,
    ) -> BatchProof<'a> {
        BatchProof { target, plan, tables, progress }
    }

    /// Begins the target's transaction, as for one table: nothing is added to the tables until its end, and the code
    /// that a query over them could run is checked first. Returns whether they have the keys that were noted.
    fn begin(&mut self, asked: &[RowsToDelete<'_>]) -> Result<bool> {
        let tables = small_batch::positions(asked).into_iter().map(|position| &self.tables[position]);
        let names: Vec<&str> = tables.clone().map(|table| table.target.name.as_str()).collect();
        let noted: Vec<String> = tables.map(|table| key::still_noted(self.plan, table)).collect();
        let mut seen = SeenTables::default();
        let look = seen.statements(self.target, self.plan, Side::Target)?;
        let answers = self.target.run_for_each(&format!(
            "BEGIN; LOCK TABLE {} IN ROW EXCLUSIVE MODE; SELECT {}; {look}",
            names.join(", "),
            noted.join(" AND ")
        ))?;
        let [noted, look] = answers.as_slice() else { return Ok(false) };
        let look = seen.read(self.target, self.plan, Side::Target, look)?;
        untrusted_code::look_through(self.target, self.plan, Side::Target, look.code())?;
        Ok(noted.is_true())
    }

    /// Returns keys and checksums of the rows to be deleted, or None for a leaf with more than a few.
    fn keys(&self, source: &mut Connection, asked: &[RowsToDelete<'_>]) -> Result<Vec<Option<Rows>>> {
        let query = |asked: &RowsToDelete<'_>| {
            let table = &self.tables[asked.position];
            let keys = rows::keys_of_source(table, asked.rows(), true);
            format!("{keys} LIMIT {}", FEW_ROWS + 1)
        };
        let queries: Vec<String> = asked.iter().map(query).collect();
        let (mut bytes, most) = (0, usize::try_from(FEW_ROWS).unwrap_or(usize::MAX));
        let answers = source.run_each(&queries, Bounds::unlimited().stall)?;
        let few = |rows: Rows| {
            bytes += rows.rows.iter().flatten().flatten().map(String::len).sum::<usize>();
            (rows.rows.len() <= most && bytes <= MOST_BYTES).then_some(rows)
        };
        Ok(answers.into_iter().map(few).collect())
    }

    /// Returns a query of one row, which is `t` if the target has all of these rows as they are, or they were changed
    /// there since it opened.
    fn question(&mut self, position: usize, keys: &Rows) -> Result<String> {
        let table = &self.tables[position];
        let mut changes = Changes::of(self.plan, self.progress, table, position);
        changes.look(self.plan, self.target, table)?;
        let scope = self.plan.scope.filter(&table.target_by, "t");
        let suspects = rows::suspects(table, &scope, &changes.explain(self.plan, table));
        Ok(format!(
            "WITH k AS MATERIALIZED {keys}
             SELECT NOT EXISTS (SELECT FROM k WHERE {missing}) AND (SELECT {suspects} FROM k) = 0 AND NOT {incomplete}",
            missing = is_missing(self.plan, table, &changes),
            incomplete = changes.are_incomplete(),
            keys = values(table, keys),
        ))
    }

    fn ask(&mut self, source: &mut Connection, asked: &[RowsToDelete<'_>]) -> Result<Vec<Option<u64>>> {
        let mut shown = vec![None; asked.len()];
        if !self.begin(asked)? {
            return Ok(shown);
        }
        // Planning a question takes time for each partition of the target, so there is one for all leaves of a table.
        let (mut of, mut keys_of) = (Vec::new(), BTreeMap::<usize, Rows>::new());
        for (number, (asked, keys)) in asked.iter().zip(self.keys(source, asked)?).enumerate() {
            let Some(keys) = keys else { continue };
            if keys.rows.is_empty() {
                shown[number] = Some(0);
                continue;
            }
            of.push((number, asked.position, u64::try_from(keys.rows.len()).ok()));
            keys_of.entry(asked.position).or_default().rows.extend(keys.rows);
        }
        let questions = keys_of.iter().map(|(position, keys)| self.question(*position, keys));
        let questions: Vec<String> = questions.collect::<Result<_>>()?;
        let answers = self.target.run_each(&questions, Bounds::unlimited().stall)?;
        let are_there = |answer: Rows| answer.is_true();
        let answers: BTreeMap<usize, bool> =
            keys_of.into_keys().zip(answers.into_iter().map(are_there)).collect();
        for (number, position, rows) in of {
            shown[number] = rows.filter(|_| answers.get(&position) == Some(&true));
        }
        Ok(shown)
    }
}

impl RowProof for BatchProof<'_> {
    /// Whether the rows have keys that are the same texts on both sides.
    fn can_show(&self, position: usize) -> bool {
        let Some(table) = self.tables.get(position) else { return false };
        let is_plain = |name: &String| table.target.column(name).is_some_and(is_plain);
        table.encoding.is_none() && table.target.key().iter().all(is_plain)
    }

    fn show(&mut self, here: &mut Connection, asked: &[RowsToDelete<'_>]) -> Result<Vec<Option<u64>>> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let shown = self.ask(here, asked);
        if matches!(&shown, Err(error) if !matches!(error, SplitError::Remote(error) if error.is_verdict())) {
            return shown;
        }
        self.target.run("ROLLBACK")?;
        shown
    }
}

fn is_plain(column: &Column) -> bool {
    column.builtin && PLAIN.contains(&column.base.as_str())
}

/// Returns keys as the target's table has them, with the checksums of their rows.
fn values(table: &SplitTable, keys: &Rows) -> String {
    let names = queue::keys(&table.source);
    let column = |at: usize| array_of(keys.rows.iter().map(|row| row.get(at).and_then(Option::as_deref)));
    let (mut arrays, mut selected) = (Vec::new(), Vec::new());
    for (at, (name, of)) in names.iter().zip(table.target.key()).enumerate() {
        let column_of = table.target.column(of);
        let type_name = column_of.map_or("text", |column| column.base.as_str());
        let collate = column_of.and_then(|column| column.collation.as_deref());
        arrays.push(format!("{}::{type_name}[]", literal(&column(at))));
        selected.push(match collate {
            Some(collation) => format!("{name} COLLATE {collation} AS {name}"),
            None => name.clone(),
        });
    }
    arrays.push(format!("{}::bigint[]", literal(&column(names.len()))));
    format!(
        "(SELECT {}, checksum FROM unnest({}) u ({}, checksum))",
        selected.join(", "),
        arrays.join(", "),
        names.iter().map(|name| ident(name)).collect::<Vec<_>>().join(", ")
    )
}
