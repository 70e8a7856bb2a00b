//! Comparison of the rows of a slice with those of the other side.
//!
//! Checksums are compared first: the keys of a slice of the source are sent to the target, each with the checksum of
//! its row, and are looked for there. Only if one is not found are the rows of the slice sent, into a table whose
//! columns are the target's: what is compared then is what the target makes of the source's values. So neither a wider
//! type nor another encoding or byte order of the servers counts as a difference, and a checksum never decides alone
//! that a row differs.
//!
//! Rows are compared as their output functions write them, in the settings of a worker's sessions: what a dump would
//! show.

use crate::agent::blocks::LeafRows;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::agent::state::queue;
use crate::catalog::split::Plan;
use crate::catalog::verification::RowDifference;
use crate::remote::copy::{Bounds, CopyPiece};
use crate::remote::pipe;
use crate::remote::quote::{ident, literal};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError, number};
use crate::split::table::columns::{ColumnMapping, ColumnSource};
use crate::split::table::{SplitTable, computed};

/// The checksum of a row as text, `r.x`, by its bytes, whatever a collation treats as equal.
pub const CHECKSUM: &str = "pg_catalog.hashtextextended(r.x COLLATE pg_catalog.\"C\", 0)";
/// The length in bytes.
pub const LENGTH: &str = "pg_catalog.octet_length(r.x)";

/// The number of differing rows of one slice that are reported; the others are only counted.
const MOST_TOLD: i64 = 1000;

/// The result of a slice.
#[derive(Debug, Default)]
pub struct SliceResult {
    pub rows: i64,
    pub bytes: i64,
    pub differing: i64,
    /// The differing rows, at most as many as are kept.
    pub found: Vec<RowDifference>,
}

impl SliceResult {
    pub fn add(&mut self, more: SliceResult) {
        self.rows += more.rows;
        self.bytes += more.bytes;
        self.differing += more.differing;
        self.found.extend(more.found);
    }
}

/// The size of a value in bytes above which its digest replaces it: a row as text has room for 1 GB, in which a bytea
/// takes twice its size, and a text with quotes in it up to that.
const LONG: u32 = 1 << 20;

/// Returns SQL for a value as it is compared.
fn value(expression: &str, column: Option<&Column>) -> String {
    let digest = match column.map(|column| column.base.as_str()) {
        Some("bytea") => format!("pg_catalog.sha256({expression})"),
        Some("text" | "character varying") => format!(
            "pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({expression}, 'UTF8')), 'hex')"
        ),
        Some(_) | None => return expression.to_owned(),
    };
    format!("CASE WHEN pg_catalog.octet_length({expression}) > {LONG} THEN {digest} ELSE {expression} END")
}

/// Returns SQL for a row of the source as the target should have it, by its output functions: a cast could be
/// user-defined.
fn row_of_source(table: &SplitTable) -> String {
    let values: Vec<String> = table
        .compared()
        .map(|pair| {
            let column = match &pair.source {
                ColumnSource::Column(name) => table.source.column(name),
                ColumnSource::Expression(_) => None,
            };
            value(&pair.select(), column)
        })
        .collect();
    format!("ROW({})::pg_catalog.text", values.join(", "))
}

/// Returns SQL for a row of the target.
fn row_of_target(table: &SplitTable) -> String {
    row_of(table, |_, pair| format!("t.{}", ident(&pair.target)))
}

/// Returns SQL for a copied row, in the target's types.
fn row_that_came(table: &SplitTable) -> String {
    row_of(table, |n, _| format!("k.c{n}"))
}

fn row_of(table: &SplitTable, name: impl Fn(usize, &ColumnMapping) -> String) -> String {
    let values: Vec<String> = (1..)
        .zip(table.compared())
        .map(|(n, pair)| value(&name(n, pair), table.target.column(&pair.target)))
        .collect();
    format!("ROW({})::pg_catalog.text", values.join(", "))
}

/// Returns an error over rows of a table without values, if some of its columns are computed by an operator's
/// expression.
pub fn without_values(error: RemoteError, table: &SplitTable) -> RemoteError {
    computed::without_values(error, &table.source.name, &table.policy)
}

/// Returns SQL for a row `t` of a side as text.
pub fn of_side(table: &SplitTable, side: Side) -> String {
    match side {
        Side::Source => row_of_source(table),
        Side::Target => row_of_target(table),
    }
}

/// Returns a key's columns, under the names that the agent's tables have for them.
fn keys(shape: &[String], names: &[String]) -> String {
    let columns: Vec<String> =
        shape.iter().zip(names).map(|(column, key)| format!("t.{} AS {key}", ident(column))).collect();
    columns.join(", ")
}

/// Both sides of a table, with the sessions of one pair.
pub struct Sides<'a> {
    pub plan: &'a Plan,
    pub table: &'a SplitTable,
    pub source: &'a mut Connection,
    pub target: &'a mut Connection,
}

/// Creates what the source's session needs for the rows of a table that the target has. A read-only transaction may
/// write to a temporary table, but not create it.
pub fn prepare_source(source: &mut Connection, table: &SplitTable) -> Result<()> {
    source.run("DROP TABLE IF EXISTS pg_temp.verify_keys")?;
    source.run(&format!(
        "CREATE TEMPORARY TABLE verify_keys ON COMMIT DELETE ROWS AS SELECT {} FROM {} t WITH NO DATA",
        keys(table.source.key(), &queue::keys(&table.source)),
        table.source.name
    ))?;
    Ok(())
}

/// Creates what the target's session needs for the rows that the source has.
pub fn prepare_target(target: &mut Connection, table: &SplitTable) -> Result<()> {
    let names = queue::keys(&table.source);
    target.run("DROP TABLE IF EXISTS pg_temp.verify_keys, pg_temp.verify_rows")?;
    target.run(&format!(
        "CREATE TEMPORARY TABLE verify_keys ON COMMIT DELETE ROWS AS
         SELECT {keys}, 0::bigint AS checksum, 0::int AS length FROM {name} t WITH NO DATA;
         CREATE TEMPORARY TABLE verify_rows ON COMMIT DELETE ROWS AS
         SELECT {columns} FROM {name} t WITH NO DATA",
        keys = keys(table.target.key(), &names),
        columns = Brought::of(table).columns(|column| format!("t.{}", ident(column))),
        name = table.target.name
    ))?;
    Ok(())
}

/// The columns that are sent for a compared row: the compared columns, as `c1`, ..., and the columns of its key that
/// are not among them. There may be as many as a table can have.
struct Brought<'a> {
    table: &'a SplitTable,
    /// The name of each key column in that table.
    keys: Vec<String>,
    /// The key columns that are not compared columns.
    alone: Vec<(String, &'a str, &'a str)>,
}

impl Brought<'_> {
    fn of(table: &SplitTable) -> Brought<'_> {
        let (mut keys, mut alone) = (Vec::new(), Vec::new());
        let names = queue::keys(&table.source);
        for ((name, from), to) in names.into_iter().zip(table.source.key()).zip(table.target.key()) {
            match table.compared().position(|pair| pair.target == *to) {
                Some(at) => keys.push(format!("c{}", at + 1)),
                None => {
                    alone.push((name.clone(), from.as_str(), to.as_str()));
                    keys.push(name);
                }
            }
        }
        Brought { table, keys, alone }
    }

    /// Returns the columns of the target's table, by the names that they have here.
    fn columns(&self, of: impl Fn(&str) -> String) -> String {
        let compared =
            (1..).zip(self.table.compared()).map(|(n, pair)| format!("{} AS c{n}", of(&pair.target)));
        let alone = self.alone.iter().map(|(name, _, to)| format!("{} AS {name}", of(to)));
        compared.chain(alone).collect::<Vec<_>>().join(", ")
    }

    /// Returns what fills them, from a row `t` of the source.
    fn selected(&self) -> String {
        let alone = self.alone.iter().map(|(_, from, _)| format!("t.{}", ident(from)));
        self.table.compared().map(ColumnMapping::select).chain(alone).collect::<Vec<_>>().join(", ")
    }

    /// Returns the rows, with their keys under the names that the agent's tables have for them.
    fn rows(&self) -> String {
        let names = queue::keys(&self.table.source);
        let keys = names.iter().zip(&self.keys).filter(|(name, column)| name != column);
        let keys: String = keys.map(|(name, column)| format!(", v.{column} AS {name}")).collect();
        format!("(SELECT v.*{keys} FROM pg_temp.verify_rows v) k")
    }
}

impl Sides<'_> {
    /// Evaluates the target's answer, and determines which rows it does not have.
    pub fn tell(&mut self, answer: &Rows, rows: LeafRows<'_>, unless: &str) -> Result<SliceResult> {
        let table = self.table;
        let row = answer.rows.first().cloned().unwrap_or_default();
        let cell = |n: usize| row.get(n).and_then(Option::as_deref);
        let shard = self.target.shard();
        let suspect = number::count(shard, "the number of rows that differ", cell(0))?;
        let mut compared = SliceResult {
            rows: number::count(shard, "the number of rows of a table", cell(1))?,
            bytes: number::count(shard, "the bytes of a table's rows", cell(2))?,
            ..SliceResult::default()
        };
        if suspect > 0 {
            self.bring_rows(rows)?;
            let scope = self.plan.scope.filter(&table.target_by, "t");
            let found = self.target.run_unbounded(&differing(table, &scope, unless))?;
            note(self.target, table, found, &mut compared)?;
        }
        Ok(compared)
    }

    /// Sends the rows themselves, into a table with the target's columns.
    fn bring_rows(&mut self, rows: LeafRows<'_>) -> Result<()> {
        let Sides { table, source, target, .. } = self;
        let format = table.text_format();
        let out = format!("COPY (SELECT {} FROM {rows}) TO STDOUT ({format})", Brought::of(table).selected());
        target.run("TRUNCATE pg_temp.verify_rows")?;
        let into = format!("COPY pg_temp.verify_rows FROM STDIN ({format})");
        pipe::statements(source, &out, target, &into, Bounds::unlimited())
            .map_err(|error| without_values(error, table))?;
        target.run("ANALYZE pg_temp.verify_rows")?;
        Ok(())
    }
}

/// The statement that empties the target's table of keys.
pub const FORGET_ON_TARGET: &str = "TRUNCATE pg_temp.verify_keys";
/// The statement for the source: TRUNCATE is not permitted in a read-only transaction.
pub const FORGET_ON_SOURCE: &str = "DELETE FROM pg_temp.verify_keys";

/// Returns the COPY of keys and checksums of some rows of a leaf of the source, for the target.
pub fn keys_from_source(table: &SplitTable, rows: LeafRows<'_>, compares: bool) -> CopyPiece<'static> {
    keys_piece(table, &keys_of_source(table, rows, compares))
}

/// Returns the COPY of keys of some rows of a leaf of the target, for the source.
pub fn keys_from_target(table: &SplitTable, rows: LeafRows<'_>) -> CopyPiece<'static> {
    let keys = keys(table.target.key(), &queue::keys(&table.source));
    keys_piece(table, &format!("SELECT {keys} FROM {rows}"))
}

fn keys_piece(table: &SplitTable, query: &str) -> CopyPiece<'static> {
    let format = table.text_format();
    CopyPiece {
        out: format!("COPY ({query}) TO STDOUT ({format})"),
        into: format!("COPY pg_temp.verify_keys FROM STDIN ({format})"),
        bounds: Bounds::unlimited(),
        look: None,
    }
}

/// Returns the query to the target about the sent keys.
pub fn looked(plan: &Plan, table: &SplitTable, unless: &str) -> String {
    format!(
        "SELECT {}, count(*), coalesce(sum(length), 0)::bigint FROM pg_temp.verify_keys k",
        suspects(table, &plan.scope.filter(&table.target_by, "t"), unless)
    )
}

/// Returns an aggregate over keys `k` with their checksums: for how many the target has no row equal to the source's.
pub fn suspects(table: &SplitTable, scope: &str, unless: &str) -> String {
    format!(
        "count(*) FILTER (WHERE NOT EXISTS (
                SELECT 1 FROM {} t, LATERAL (SELECT {} AS x OFFSET 0) r
                 WHERE {} AND {scope} AND {CHECKSUM} = k.checksum) AND NOT ({unless}))",
        table.target_only(),
        row_of_target(table),
        table.target_join()
    )
}

/// Returns a query for the keys of some rows of a leaf of the source, with the checksums and the lengths of the rows.
/// If rows are not compared, it returns only keys: the rows may have no text form.
pub fn keys_of_source(table: &SplitTable, rows: LeafRows<'_>, compares: bool) -> String {
    let names = queue::keys(&table.source);
    format!(
        "SELECT {}, {CHECKSUM}, {LENGTH}
           FROM (SELECT {}, {} AS x FROM {rows} OFFSET 0) r",
        names.join(", "),
        keys(table.source.key(), &names),
        if compares { row_of_source(table) } else { "''::pg_catalog.text".to_owned() }
    )
}

/// Returns a query for rows that the target does not have as it would store them, and how they differ.
fn differing(table: &SplitTable, scope: &str, unless: &str) -> String {
    let columns: Vec<String> = (1..)
        .zip(table.compared())
        .map(|(n, pair)| {
            let of = |name: &str| value(name, table.target.column(&pair.target));
            let (there, here) = (of(&format!("t.{}", ident(&pair.target))), of(&format!("k.c{n}")));
            format!(
                "CASE WHEN ROW({there})::pg_catalog.text IS DISTINCT FROM ROW({here})::pg_catalog.text THEN {} END",
                literal(&ident(&pair.target))
            )
        })
        .collect();
    format!(
        "SELECT {}, count(*) OVER (),
                CASE WHEN t.tableoid IS NULL THEN 'missing on the target'
                     ELSE 'differs in ' || array_to_string(ARRAY[{}]::text[], ', ') END
           FROM {} LEFT JOIN {} t ON {} AND {scope}
          WHERE (t.tableoid IS NULL
                 OR {} COLLATE pg_catalog.\"C\" <> {} COLLATE pg_catalog.\"C\")
            AND NOT ({unless})
          LIMIT {MOST_TOLD}",
        texts(table),
        columns.join(", "),
        Brought::of(table).rows(),
        table.target_only(),
        table.target_join(),
        row_of_target(table),
        row_that_came(table)
    )
}

/// Returns SQL for the values of a key `k`, each by its output function.
fn texts(table: &SplitTable) -> String {
    let texts: Vec<String> =
        queue::keys(&table.source).iter().map(|key| format!("pg_catalog.format('%s', k.{key})")).collect();
    texts.join(", ")
}

/// Returns the query to the source for the sent keys that it does not have.
pub fn unknown_to_source(plan: &Plan, table: &SplitTable) -> String {
    format!(
        "ANALYZE pg_temp.verify_keys;
         SELECT {}, count(*) OVER (), 'missing on the source'
           FROM pg_temp.verify_keys k
          WHERE NOT EXISTS (SELECT 1 FROM {} t WHERE {} AND {})
          LIMIT {MOST_TOLD}",
        texts(table),
        table.source.name,
        table.source_join(),
        plan.scope.filter(&table.source_by, "t")
    )
}

/// Reads for each row the texts of its key and how it differs, and the number of rows.
pub fn note(
    connection: &Connection,
    table: &SplitTable,
    found: Rows,
    compared: &mut SliceResult,
) -> Result<()> {
    let width = table.source.key().len();
    for row in found.rows {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        let key: Vec<String> = cells.by_ref().take(width).collect();
        let count = cells.next();
        compared.differing =
            number::count(connection.shard(), "the number of rows that differ", count.as_deref())?;
        compared.found.push(RowDifference { key, what: cells.next().unwrap_or_default() });
    }
    Ok(())
}
