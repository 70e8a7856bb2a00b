//! Tables that take each other's rows: columns, types and keys of both sides.

use super::encoding;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::{Plan, PlannedTable};
use crate::remote::quote::{ident, literal};
use crate::split::finding::Finding;
use crate::split::table::columns::{self, ColumnSource};

/// Compares tables that take each other's rows, in two different places.
pub fn compare(plan: &Plan, source: &ObservedSide, target: &ObservedSide, findings: &mut Vec<Finding>) {
    findings.extend(encoding::of_both(source, target));
    for ((from, to), policy) in
        source.observation.tables.iter().zip(&target.observation.tables).zip(&plan.tables)
    {
        if from.oid.is_none() || to.oid.is_none() {
            continue;
        }
        findings.extend(columns(policy, from, to));
        findings.extend(types(plan, policy, from, to));
        findings.extend(keys(from, to));
        findings.push(Finding::new(
            "same primary key",
            from.key() == to.key(),
            format!("{} ({}), {} ({})", from.name, from.key().join(", "), to.name, to.key().join(", ")),
            "Give the target the primary key of the source.",
        ));
    }
}

/// Returns every difference with whether it is accepted.
fn columns(policy: &PlannedTable, from: &TableShape, to: &TableShape) -> Vec<Finding> {
    let differences = columns::pair(from, to, &policy.maps, &columns::fixed(to, policy)).differences;
    if differences.is_empty() {
        return vec![Finding::new("same columns", true, from.name.clone(), "")];
    }
    let computed =
        "Make the columns equal, or set with shard_split_map() how this one is computed (NULL: left out).";
    let plain = "shard_split_map() with the column's own name as the expression removes its mapping.";
    differences
        .into_iter()
        .map(|difference| {
            let name = if difference.ok { "compatible columns" } else { "same columns" };
            let needs_none = ["cannot be computed", "on neither side"];
            let hint =
                if needs_none.iter().any(|end| difference.text.ends_with(end)) { plain } else { computed };
            Finding::new(name, difference.ok, format!("{}: {}", from.name, difference.text), hint)
        })
        .collect()
}

/// Checks the types of columns that are copied as they are. The author of a computed column has decided about its
/// type.
fn types(plan: &Plan, policy: &PlannedTable, from: &TableShape, to: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pair in columns::pair(from, to, &policy.maps, &[]).pairs {
        let ColumnSource::Column(name) = &pair.source else { continue };
        let (Some(out), Some(into)) = (from.column(name), to.column(&pair.target)) else { continue };
        let Some(problem) = type_problem(out, into) else { continue };
        let hint = format!(
            "Set how it is computed, or leave it out with NULL: SELECT shard_split_map({}, {}, {}, {})",
            plan.id,
            literal(&policy.table_name),
            literal(&pair.target),
            literal(&format!("{}::text", ident(name)))
        );
        findings.push(Finding::new(
            "types",
            false,
            format!("{}: column \"{name}\" {problem}", from.name),
            &hint,
        ));
    }
    findings
}

/// Returns why a column's values may differ on the other side.
fn type_problem(out: &Column, into: &Column) -> Option<String> {
    let part = out.cannot_travel().or_else(|| into.cannot_travel())?;
    let of = match &part.extension {
        Some(extension) => format!(" of extension \"{extension}\""),
        None => String::new(),
    };
    Some(format!(
        "is of type {}: values of type {}{of} may change on the way{}",
        out.type_name,
        part.name,
        part.note().map_or(String::new(), |note| format!(" ({note})"))
    ))
}

/// Checks the keys that rows are found by.
fn keys(from: &TableShape, to: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    for shape in [from, to] {
        let operators = shape.operators.as_deref().unwrap_or_default();
        for (name, operator) in shape.key().iter().zip(operators) {
            let Some(column) = shape.column(name) else { continue };
            if operator.is_none() {
                let detail = format!(
                    "{}: column \"{name}\" is in an index without the equality of a btree",
                    shape.name
                );
                let hint = "Give the table a primary key without WITHOUT OVERLAPS.";
                findings.push(Finding::new("primary key by equality", false, detail, hint));
            }
            if let Some(part) = column.cannot_be_key() {
                let detail = format!(
                    "{}: column \"{name}\" is of type {}, whose equality may not find rows again",
                    shape.name, part.name
                );
                findings.push(Finding::new(
                    "types of the primary key",
                    false,
                    detail,
                    "Add a primary key of other columns.",
                ));
            }
        }
    }
    for name in from.key() {
        let equality = |shape: &TableShape| shape.column(name).and_then(|column| column.equality.clone());
        let (source, target) = (equality(from), equality(to));
        if source != target {
            let text = |equality: Option<String>| equality.unwrap_or_else(|| "that of bytes".to_owned());
            let detail = format!(
                "{}: column \"{name}\": equality is {} on the source, {} on the target",
                from.name,
                text(source),
                text(target)
            );
            let hint =
                "Give the column the same collation on both sides, of the same version of its library.";
            findings.push(Finding::new("collations of the primary key", false, detail, hint));
        }
    }
    findings
}
