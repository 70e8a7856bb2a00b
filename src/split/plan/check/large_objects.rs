//! Columns that name large objects: known by a trigger of the extension `lo`, by their type, or by their values.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::table_names::TableNames;
use crate::catalog::split::{Plan, PlannedTable};
use crate::guc;
use crate::remote::quote::{array_of, ident};
use crate::remote::{Connection, number};
use std::collections::{BTreeMap, BTreeSet};

const LARGE_OBJECTS: &str = include_str!("../../../../sql/check/large_objects.sql");
const COLUMNS: &str = include_str!("../../../../sql/check/lob_columns.sql");

/// The number of rows of the scope whose values are read: values that are longer than a number are skipped.
const SAMPLE: usize = 500;

/// A table whose rows move, with the columns that are copied as they are.
pub struct MovingTable<'a> {
    pub policy: &'a PlannedTable,
    pub shape: &'a TableShape,
    pub columns: Vec<&'a Column>,
}

/// The columns that name large objects, and whether there are any.
pub struct LargeObjects {
    /// The columns, by table and name, with a trigger that deletes the objects.
    managed: BTreeSet<(usize, String)>,
    has_any: bool,
    /// Columns of other types whose values are numbers of large objects, and how many values were read.
    sampled: BTreeMap<(usize, String), usize>,
}

/// How many large objects rows of the scope name.
pub enum NamedObjects {
    None,
    Some(usize),
    /// All of this many values that were read.
    Sampled(usize),
    Uncounted,
}

impl LargeObjects {
    /// Returns None if the column names none, or is not known to.
    pub fn named(
        &self,
        plan: &Plan,
        source: &mut Connection,
        position: usize,
        table: &MovingTable<'_>,
        column: &Column,
    ) -> Result<Option<NamedObjects>> {
        let named = (position, column.name.clone());
        let is_managed = self.managed.contains(&named);
        if column.base == "oid" && (self.has_any || is_managed) {
            let named = count(plan, source, table.policy, table.shape, column)?;
            return Ok((is_managed || !matches!(named, NamedObjects::None)).then_some(named));
        }
        match self.sampled.get(&named) {
            Some(number) => Ok(Some(NamedObjects::Sampled(*number))),
            None => Ok(is_managed.then_some(NamedObjects::None)),
        }
    }
}

pub fn find(plan: &Plan, source: &mut Connection, moving: &[MovingTable<'_>]) -> Result<LargeObjects> {
    let lists = TableNames::of(plan, Side::Source).lists();
    let rows = catalogs::ask(source, LARGE_OBJECTS, &catalogs::given(&lists))?;
    let mut large = LargeObjects { managed: BTreeSet::new(), has_any: false, sampled: BTreeMap::new() };
    for row in &rows.rows {
        match row.as_slice() {
            [Some(position), Some(column), _] => {
                large.managed.extend(position.parse().ok().map(|position| (position, column.clone())));
            }
            [_, _, Some(number)] => large.has_any = number != "0",
            _ => {}
        }
    }
    if large.has_any {
        large.sampled = sampled(plan, source, moving)?;
    }
    Ok(large)
}

/// Finds columns of other types for which all values that are read are numbers of existing large objects.
fn sampled(
    plan: &Plan,
    source: &mut Connection,
    moving: &[MovingTable<'_>],
) -> Result<BTreeMap<(usize, String), usize>> {
    let oids = array_of(moving.iter().map(|table| table.shape.oid.as_deref()));
    let rows = catalogs::ask(source, COLUMNS, &[Some(&oids)])?;
    let could = rows.pairs().filter_map(|(position, column)| Some((number::index(&position)?, column)));
    let could: BTreeSet<(usize, String)> = could.collect();
    let mut found = BTreeMap::new();
    for (position, table) in moving.iter().enumerate() {
        let is_one = |column: &&&Column| {
            column.name != table.policy.shard_by && could.contains(&(position, column.name.clone()))
        };
        let columns: Vec<&Column> = table.columns.iter().filter(is_one).copied().collect();
        let numbers = look(plan, source, table, &columns)?;
        let named = columns.iter().zip(numbers).filter(|(_, number)| *number > 0);
        found.extend(named.map(|(column, number)| ((position, column.name.clone()), number)));
    }
    Ok(found)
}

/// Returns for each column the number of values that were read, if all of them are numbers of large objects; else 0.
fn look(
    plan: &Plan,
    source: &mut Connection,
    table: &MovingTable<'_>,
    columns: &[&Column],
) -> Result<Vec<usize>> {
    let Some(by) = table.shape.column(&table.policy.shard_by).filter(|_| !columns.is_empty()) else {
        return Ok(Vec::new());
    };
    let (functions, predicate) = plan.scope.dry_predicate(by, "t");
    let names: Vec<String> = columns.iter().map(|column| format!("t.{}", ident(&column.name))).collect();
    let counts: Vec<String> = columns.iter().map(|column| all_are_named(&ident(&column.name))).collect();
    let query = format!(
        "SELECT {} FROM (SELECT {} FROM {} t WHERE {predicate} LIMIT {SAMPLE}) s",
        counts.join(", "),
        names.join(", "),
        table.shape.name
    );
    // Rows of the scope that are not found in time are not read.
    let found = source.undone_within(guc::remote_timeout() / 5, &functions, &query)?;
    let row = found.and_then(|found| found.rows.into_iter().next()).unwrap_or_default();
    Ok(row.into_iter().map(|cell| cell.and_then(|n| n.parse().ok()).unwrap_or(0)).collect())
}

/// Returns SQL for the number of values of the column, if each is the number of a large object.
fn all_are_named(column: &str) -> String {
    let text = format!("s.{column}::pg_catalog.text");
    let number = format!(
        "CASE WHEN pg_catalog.pg_column_size(s.{column}) OPERATOR(pg_catalog.>) 30 THEN NULL
              WHEN {text} OPERATOR(pg_catalog.!~) '^[1-9][0-9]{{0,9}}$' THEN NULL
              WHEN {text}::pg_catalog.int8 OPERATOR(pg_catalog.<) 4294967296 THEN {text}::pg_catalog.int8::pg_catalog.oid END"
    );
    format!(
        "CASE WHEN pg_catalog.count(s.{column}) OPERATOR(pg_catalog.=) pg_catalog.count(
                (SELECT 1 FROM pg_catalog.pg_largeobject_metadata m WHERE m.oid OPERATOR(pg_catalog.=) {number}))
              THEN pg_catalog.count(s.{column}) ELSE 0 END"
    )
}

fn count(
    plan: &Plan,
    source: &mut Connection,
    policy: &PlannedTable,
    shape: &TableShape,
    column: &Column,
) -> Result<NamedObjects> {
    let Some(by) = shape.column(&policy.shard_by) else { return Ok(NamedObjects::None) };
    let (functions, predicate) = plan.scope.dry_predicate(by, "t");
    let query = format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_largeobject_metadata m
          WHERE m.oid IN (SELECT t.{}::pg_catalog.oid FROM {} t WHERE {predicate})",
        ident(&column.name),
        shape.name
    );
    let counted = source.undone_within(guc::remote_timeout() * 4 / 5, &functions, &query)?;
    let Some(counted) = counted else { return Ok(NamedObjects::Uncounted) };
    Ok(match counted.scalar().and_then(|number| number.parse().ok()) {
        None | Some(0) => NamedObjects::None,
        Some(number) => NamedObjects::Some(number),
    })
}
