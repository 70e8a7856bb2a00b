//! Columns whose values have a meaning only on the source: they are copied as they are, and have no meaning or another
//! one on the target. The operator decides whether that is right. The type need not show it: a transaction id may be
//! in a bigint, and the number of a large object in a text.

use super::large_objects::{self, MovingTable, NamedObjects};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::{Column, Observation, TableShape};
use crate::catalog::split::{Plan, PlannedTable};
use crate::clean;
use crate::remote::quote::{array_of, ident_as_needed};
use crate::remote::{Connection, number};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::table::columns::{self, ColumnSource};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

const FUNCTIONS: &str = include_str!("../../../../sql/check/server_functions.sql");

pub fn check(plan: &Plan, source: &mut ObservedSide, on_target: &Observation) -> Result<Vec<Finding>> {
    let ObservedSide { session: source, observation: on_source, .. } = source;
    let tables = plan.tables.iter().zip(on_source.tables.iter().zip(&on_target.tables));
    let moving: Vec<MovingTable<'_>> = tables.map(|(policy, (from, to))| moving(policy, from, to)).collect();
    let large = large_objects::find(plan, source, &moving)?;
    let mut findings = Vec::new();
    let mut told = BTreeSet::new();
    for (position, table) in moving.iter().enumerate() {
        for column in &table.columns {
            let named = large.named(plan, source, position, table, column)?;
            let part = column.of_one_server();
            let Some((remark, detail)) = (match (named, part) {
                (None, None) => None,
                (None, Some(part)) => {
                    Some((Remark::ServerValues, of_one_server(table.shape, column, &part.name)))
                }
                (Some(named), _) => {
                    Some((Remark::LargeObjects, of_large_objects(table.shape, column, &named)))
                }
            }) else {
                continue;
            };
            told.insert((position, column.name.clone()));
            findings.push(Finding::remark(remark, &object(table.policy, Some(&column.name)), detail));
        }
    }
    findings.extend(filled_by_functions(source, &moving, &told)?);
    Ok(findings)
}

/// Returns a table with the columns that are copied as they are. The author of a computed column has decided about its
/// values.
fn moving<'a>(policy: &'a PlannedTable, from: &'a TableShape, to: &TableShape) -> MovingTable<'a> {
    let pairs = columns::pair(from, to, &policy.maps, &[]).pairs;
    let plain = pairs.into_iter().filter_map(|pair| match pair.source {
        ColumnSource::Column(name) => from.column(&name),
        _ => None,
    });
    MovingTable { policy, shape: from, columns: plain.collect() }
}

/// Returns the name of a table, or of a column of it.
fn object(policy: &PlannedTable, column: Option<&str>) -> String {
    match column {
        Some(column) => format!("{}.{}", policy.table_name, ident_as_needed(column)),
        None => policy.table_name.clone(),
    }
}

/// Finds columns of any type that are filled with what only the source counts. `told`: columns that are reported
/// already.
fn filled_by_functions(
    source: &mut Connection,
    moving: &[MovingTable<'_>],
    told: &BTreeSet<(usize, String)>,
) -> Result<Vec<Finding>> {
    let oids = array_of(moving.iter().map(|table| table.shape.oid.as_deref()));
    let rows = catalogs::ask(source, FUNCTIONS, &[Some(&oids)])?;
    let mut found: BTreeMap<(usize, Option<String>), Vec<String>> = BTreeMap::new();
    for row in rows.rows {
        let [Some(position), column, Some(what)] = row.as_slice() else { continue };
        let Some(position) = number::index(position) else { continue };
        let Some(table) = moving.get(position) else { continue };
        let moves = |name: &String| table.columns.iter().any(|column| column.name == *name);
        let is_told = |name: &String| told.contains(&(position, name.clone()));
        if column.as_ref().is_none_or(|name| moves(name) && !is_told(name)) {
            found.entry((position, column.clone())).or_default().push(clean::printable(what));
        }
    }
    let finding = |((position, column), what): ((usize, Option<String>), Vec<String>)| {
        let table = moving.get(position)?;
        let of = column.as_ref().map_or(String::new(), |name| format!(" column \"{name}\":"));
        let detail = format!(
            "{}:{of} {}: its results have a meaning on their own server only, and are copied as they are",
            table.shape.name,
            what.join("; ")
        );
        Some(Finding::remark(Remark::ServerValues, &object(table.policy, column.as_deref()), detail))
    };
    Ok(found.into_iter().filter_map(finding).collect())
}

fn of_one_server(shape: &TableShape, column: &Column, part: &str) -> String {
    let Column { name, type_name, .. } = column;
    format!(
        "{}: column \"{name}\" is of type {type_name}: values of type {part} have a meaning on their own server only, and are copied as they are",
        shape.name
    )
}

fn of_large_objects(shape: &TableShape, column: &Column, named: &NamedObjects) -> String {
    let number = match named {
        NamedObjects::None => "no large object that exists".to_owned(),
        NamedObjects::Some(number) => counted(*number, "large object", "large objects"),
        NamedObjects::Sampled(number) => {
            format!("large objects, like all {number} values that were examined")
        }
        NamedObjects::Uncounted => "large objects, which were not counted in time".to_owned(),
    };
    format!(
        "{}: column \"{}\" of rows that move names {number}: large objects do not move, and stay on the source",
        shape.name, column.name
    )
}
