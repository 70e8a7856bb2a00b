//! Columns whose values mean something on the source alone: they come over as they are written, and say nothing there, or
//! something else. Whether that is well the operator knows.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::shape::{Column, Observation, TableShape};
use crate::agent::{catalogs, observe};
use crate::catalog::split::{Plan, Policy};
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::{ident, ident_as_needed, text_array};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::table::columns::{self, Source};
use crate::words::counted;
use std::collections::BTreeSet;

const LARGE_OBJECTS: &str = include_str!("../../../../sql/check/large_objects.sql");

/// What names large objects, and whether there are any.
struct LargeObjects {
    /// By table and column: those of a trigger that deletes them.
    managed: BTreeSet<(usize, String)>,
    has_any: bool,
}

pub fn check(
    plan: &Plan,
    (source, on_source): (&mut Connection, &Observation),
    on_target: &Observation,
) -> Result<Vec<Finding>> {
    let tables = plan.tables.iter().zip(on_source.tables.iter().zip(&on_target.tables)).enumerate();
    let mut found = Vec::new();
    for (position, (policy, (from, to))) in tables {
        // What is computed, its author has thought about.
        for pair in columns::pair(from, to, &policy.maps, &[]).pairs {
            let Source::Column(name) = &pair.source else { continue };
            let Some(column) = from.column(name) else { continue };
            if let Some(part) = column.of_one_server() {
                found.push((position, policy, from, column, part.name.clone()));
            }
        }
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let large = large_objects(plan, source)?;
    let mut findings = Vec::new();
    for (position, policy, shape, column, part) in found {
        let is_managed = large.managed.contains(&(position, column.name.clone()));
        let named = match column.base == "oid" && (large.has_any || is_managed) {
            true => count(plan, source, policy, shape, column)?,
            false => Named::None,
        };
        let object = format!("{}.{}", policy.table_name, ident_as_needed(&column.name));
        findings.push(match (&named, is_managed) {
            (Named::None, false) => {
                Finding::remark(Remark::ServerValues, &object, of_one_server(shape, column, &part))
            }
            _ => Finding::remark(Remark::LargeObjects, &object, of_large_objects(shape, column, &named)),
        });
    }
    Ok(findings)
}

fn of_one_server(shape: &TableShape, column: &Column, part: &str) -> String {
    let Column { name, type_name, .. } = column;
    format!(
        "{}: column \"{name}\" is of type {type_name}: values of type {part} mean something on the server that gave them, and come over as they are written",
        shape.name
    )
}

fn of_large_objects(shape: &TableShape, column: &Column, named: &Named) -> String {
    let number = match named {
        Named::None => "no large object that is there".to_owned(),
        Named::Some(number) => counted(*number, "large object", "large objects"),
        Named::Uncounted => "large objects, which were not counted in time".to_owned(),
    };
    format!(
        "{}: column \"{}\" of rows that move names {number}: large objects do not move, and stay on the source",
        shape.name, column.name
    )
}

fn large_objects(plan: &Plan, source: &mut Connection) -> Result<LargeObjects> {
    let (schemas, names) = observe::table_names(plan, Side::Source);
    let lists = [schemas, names].map(|list| text_array(&list));
    let rows = catalogs::ask(source, LARGE_OBJECTS, &[Some(&lists[0]), Some(&lists[1])])?;
    let mut large = LargeObjects { managed: BTreeSet::new(), has_any: false };
    for row in &rows.rows {
        match row.as_slice() {
            [Some(position), Some(column), _] => {
                large.managed.extend(position.parse().ok().map(|position| (position, column.clone())));
            }
            [_, _, Some(number)] => large.has_any = number != "0",
            _ => {}
        }
    }
    Ok(large)
}

/// How many large objects rows of the scope name.
enum Named {
    None,
    Some(usize),
    Uncounted,
}

fn count(
    plan: &Plan,
    source: &mut Connection,
    policy: &Policy,
    shape: &TableShape,
    column: &Column,
) -> Result<Named> {
    let Some(by) = shape.column(&policy.shard_by) else { return Ok(Named::None) };
    let (functions, predicate) = plan.scope.dry_predicate(by, "t");
    let limit = guc::remote_timeout().as_millis() * 4 / 5;
    let query = format!(
        "{functions}; SET LOCAL statement_timeout = '{limit}ms';
         SELECT pg_catalog.count(*) FROM pg_catalog.pg_largeobject_metadata m
          WHERE m.oid IN (SELECT t.{}::pg_catalog.oid FROM {} t WHERE {predicate})",
        ident(&column.name),
        shape.name
    );
    let counted = source.undone(|source| source.run(&query).map_err(SplitError::from));
    match counted {
        Ok(rows) => Ok(match rows.scalar().and_then(|number| number.parse().ok()) {
            None | Some(0) => Named::None,
            Some(number) => Named::Some(number),
        }),
        Err(SplitError::Remote(error)) if error.is("57014") => Ok(Named::Uncounted),
        Err(error) => Err(error),
    }
}
