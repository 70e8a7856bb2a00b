//! Partitions of the target: each row of the scope must have one that takes it. The target returns what a partition
//! takes, and the source whether a row fits.

use super::rows::look_through;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::agent::shape::{Column, Observation};
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, plain};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::split::finding::Finding;
use std::collections::BTreeSet;

const PARTITIONS: &str = include_str!("../../../../sql/check/partitions.sql");
const NAME: &str = "target: partitions";

/// A partition that holds rows.
struct FilledPartition {
    position: usize,
    name: String,
    takes: Option<String>,
    /// A table above it that hashes, with a missing partition.
    lacking: Option<String>,
}

pub fn check(plan: &Plan, source: &mut ObservedSide, target: &mut Connection) -> Result<Vec<Finding>> {
    let ObservedSide { session: source, observation: ours, .. } = source;
    let there = leaves(plan, target, Side::Target)?;
    if there.is_empty() {
        return Ok(Vec::new());
    }
    let here = leaves(plan, source, Side::Source)?;
    let mut findings = Vec::new();
    for (position, shape) in ours.tables.iter().enumerate() {
        let taking: Vec<&FilledPartition> = there.iter().filter(|leaf| leaf.position == position).collect();
        let Some(first) = taking.first() else { continue };
        if let Some(parent) = &first.lacking {
            let detail = format!("{parent} is partitioned by hash, and not every remainder has a partition");
            let hint =
                "Create the missing partition on the target. Which rows would go there is not known before.";
            findings.push(Finding::new(NAME, false, detail, hint));
            continue;
        }
        let taken: BTreeSet<&str> = taking.iter().filter_map(|leaf| leaf.takes.as_deref()).collect();
        // Bounds that a partition of each side has need no check.
        let mut looked_at: Vec<String> = here
            .iter()
            .filter(|leaf| {
                leaf.position == position && leaf.takes.as_deref().is_none_or(|t| !taken.contains(t))
            })
            .map(|leaf| leaf.name.clone())
            .collect();
        if !shape.is_partitioned() {
            looked_at.push(shape.name.clone());
        }
        for leaf in looked_at {
            findings.extend(homeless(plan, source, position, ours, &leaf, &taken)?);
        }
    }
    Ok(findings)
}

/// Returns a row of the scope in a table of the source that no partition of the target takes.
fn homeless(
    plan: &Plan,
    source: &mut Connection,
    position: usize,
    ours: &Observation,
    leaf: &str,
    taken: &BTreeSet<&str>,
) -> Result<Option<Finding>> {
    let (Some(policy), Some(shape)) = (plan.tables.get(position), ours.tables.get(position)) else {
        return Ok(None);
    };
    let Some(column) = shape.column(&policy.shard_by) else { return Ok(None) };
    let hint_of_both = "Give both sides the same partitions.";
    // The target has written these texts, and the source would compute them with the mover's rights.
    let is_known = |name: &plain::PlainName| {
        let is_type =
            |c: &Column| [&c.base, &c.stored, &c.type_name].iter().any(|known| **known == name.text);
        // With a call, it would be a function of the source that has the type's name.
        plain::is_harmless(&name.text) || !name.is_called && shape.columns().iter().any(is_type)
    };
    if let Some(takes) = taken.iter().find(|takes| !plain::is_expression(takes, is_known)) {
        let detail =
            format!("{leaf}: it is not asked whether the target accepts its rows, because of {takes}");
        return Ok(Some(Finding::new(NAME, false, detail, hint_of_both)));
    }
    let any: Vec<String> = taken.iter().map(|takes| format!("({takes})")).collect();
    let any = if any.is_empty() { "false".to_owned() } else { any.join(" OR ") };
    // A table without a key has another finding.
    let shown = if shape.key().is_empty() { std::slice::from_ref(&column.name) } else { shape.key() };
    let key: Vec<String> = shown.iter().map(|name| format!("t.{}", ident(name))).collect();
    let found = look_through(plan, source, shape, column, |predicate| {
        format!(
            "SELECT concat_ws(', ', {}) FROM {leaf} t WHERE ({predicate}) AND NOT coalesce({any}, false) LIMIT 1",
            key.join(", ")
        )
    });
    let hint = "Create the partition on the target, or a default one.";
    Ok(match found {
        Ok(rows) => rows.scalar().map(|row| {
            let detail = format!("{leaf}: no partition of the target takes the row with key ({row})");
            Finding::new(NAME, false, detail, hint)
        }),
        Err(error) if error.is_verdict() => {
            let detail =
                format!("{leaf}: it cannot be asked whether the target accepts its rows: {}", error.message);
            Some(Finding::new(NAME, false, detail, hint_of_both))
        }
        Err(error) => return Err(error.into()),
    })
}

fn leaves(plan: &Plan, connection: &mut Connection, side: Side) -> Result<Vec<FilledPartition>> {
    let lists = TableNames::of(plan, side).lists();
    let rows = catalogs::ask(connection, PARTITIONS, &catalogs::given(&lists))?;
    let leaf = |row: &Vec<Option<String>>| {
        let cell = |n: usize| row.get(n).cloned().flatten();
        Some(FilledPartition {
            position: cell(0)?.parse().ok()?,
            name: cell(1)?,
            takes: cell(2),
            lacking: cell(3),
        })
    };
    Ok(rows.rows.iter().filter_map(leaf).collect())
}
