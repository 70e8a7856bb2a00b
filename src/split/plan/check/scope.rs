//! The columns by which rows belong to keys, checked against the list of what is known to be right.

use super::encoding;
use super::rows::{RowsOf, ScopeTable};
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::{Column, Observation, TableShape};
use crate::agent::state::side::{self, Installed};
use crate::agent::types::TypeFamily;
use crate::catalog::split::Plan;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::remote::Connection;
use crate::remote::quote::array_literal;
use crate::split::finding::Finding;
use std::collections::BTreeMap;

/// Checks the shard-by columns, and rows of the scope where none must be.
pub fn check(
    plan: &Plan,
    side: Side,
    connection: &mut Connection,
    observation: &Observation,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let label = |name: &str| format!("{}: {name}", side.as_str());
    let installed = side::installed(connection, plan, side)?;
    if installed == Installed::Foreign {
        let failure = side::foreign(connection.shard(), plan);
        findings.push(Finding::of_failure(&label("number of the split"), failure));
    }
    let (lines, is_text) = columns(plan, observation, &label("shard-by columns"));
    let keys = match plan.scope.keys() {
        Some(keys) => keys_by_type(connection, keys, &lines)?,
        None => BTreeMap::new(),
    };
    // A reverse split finds its rows where they have been.
    let is_empty_before = installed == Installed::No && plan.reverse_of.is_none();
    let rows = match side {
        Side::Target if is_empty_before => Some(RowsOf::None),
        Side::Source if plan.moves_all => Some(RowsOf::Staying),
        Side::Source | Side::Target => None,
    };
    let fit = |line: &ScopeLine<'_>| match line {
        ScopeLine::Fits(table) => Some(finding_of_keys(&label("keys"), &keys, *table)),
        ScopeLine::Found(_) => None,
    };
    let of_keys: Vec<Option<Finding>> = lines.iter().map(fit).collect();
    let looked_at: Vec<ScopeTable<'_>> = lines
        .iter()
        .zip(&of_keys)
        .filter(|(_, keys)| keys.as_ref().is_some_and(|keys| keys.ok))
        .filter_map(|(line, _)| line.table())
        .collect();
    let mut of_rows = match rows {
        Some(rows) => rows.look(plan, connection, &looked_at)?.into_iter(),
        None => Vec::new().into_iter(),
    };
    for (line, keys) in lines.into_iter().zip(of_keys) {
        match (line, keys) {
            (ScopeLine::Found(finding), _) => findings.push(finding),
            (ScopeLine::Fits(_), keys) => {
                let is_well = keys.as_ref().is_some_and(|keys| keys.ok);
                findings.extend(keys);
                findings.extend(is_well.then(|| of_rows.next()).flatten());
            }
        }
    }
    if is_text {
        findings.extend(encoding::of_keys(plan, &label("encoding"), &observation.encoding));
    }
    Ok(())
}

/// The result for a table's shard-by column.
enum ScopeLine<'a> {
    Found(Finding),
    /// Its values are keys.
    Fits(ScopeTable<'a>),
}

impl<'a> ScopeLine<'a> {
    fn table(&self) -> Option<ScopeTable<'a>> {
        match self {
            ScopeLine::Fits(table) => Some(*table),
            ScopeLine::Found(_) => None,
        }
    }
}

/// Returns the results for the shard-by columns by their types, and whether one is a text.
fn columns<'a>(plan: &Plan, observation: &'a Observation, name: &str) -> (Vec<ScopeLine<'a>>, bool) {
    let mut first: Option<(&TableShape, &Column, TypeFamily)> = None;
    let (mut lines, mut is_text) = (Vec::new(), false);
    for (policy, shape) in plan.tables.iter().zip(&observation.tables) {
        let Some(column) = shape.column(&policy.shard_by) else { continue };
        let family = match family(plan, shape, column) {
            Ok(family) => family,
            Err((problem, hint)) => {
                lines.push(ScopeLine::Found(Finding::new(name, false, problem, hint)));
                continue;
            }
        };
        is_text |= matches!(family, TypeFamily::Text | TypeFamily::Enum(_));
        match &first {
            Some((other, with, known)) if !can_be_compared(plan, known, &family) => {
                let problem = format!(
                    "{}: column \"{}\" is of type {}, {}: column \"{}\" is of type {}",
                    other.name, with.name, with.base, shape.name, column.name, column.base
                );
                let hint = "Give the shard-by columns of a keyspace one type.";
                lines.push(ScopeLine::Found(Finding::new(name, false, problem, hint)));
                continue;
            }
            Some(_) => {}
            None => first = Some((shape, column, family)),
        }
        lines.push(ScopeLine::Fits(ScopeTable { shape, column }));
    }
    (lines, is_text)
}

/// Returns what a column's values are as keys. An error describes what is wrong with it and what to do.
fn family(
    plan: &Plan,
    shape: &TableShape,
    column: &Column,
) -> std::result::Result<TypeFamily, (String, &'static str)> {
    let is = format!("{}: column \"{}\" is of type {}", shape.name, column.name, column.base);
    let Some(family) = column.family() else {
        let hint = "Shard by a column of type smallint, integer, bigint, numeric, text, varchar, char, uuid or an enum.";
        return Err((format!("{is}, whose values cannot be keys"), hint));
    };
    if let Some(equality) = &column.equality {
        let hint = "Give the column a deterministic collation, which routing needs.";
        return Err((format!("{is} with a nondeterministic collation ({equality})"), hint));
    }
    let fits = match (plan.scope.strategy().of(), plan.key_type) {
        (Some(of), _) => has_order(&family, of),
        (None, Some(key_type)) => match key_type {
            KeyType::SmallInt | KeyType::Integer | KeyType::BigInt | KeyType::Numeric => {
                matches!(family, TypeFamily::Integer | TypeFamily::Numeric)
            }
            KeyType::Text | KeyType::VarChar | KeyType::Char => {
                matches!(family, TypeFamily::Text | TypeFamily::Enum(_))
            }
            KeyType::Uuid => family == TypeFamily::Uuid,
        },
        // Keys are taken as text: one numeric value has many texts.
        (None, None) => family != TypeFamily::Numeric,
    };
    let key_type = plan.key_type.unwrap_or(KeyType::Text);
    let is_told = key_type.tells_apart(column.is_padded(), plan.scope.strategy().of().is_none());
    let keys = key_type.as_str();
    let hint = "Give the column the keyspace's key type, or the keyspace the column's.";
    if fits && is_told {
        Ok(family)
    } else {
        Err((format!("{is}, keys of the keyspace are of type {keys}"), hint))
    }
}

/// Whether values are hashed and ordered like their keys. A cast must neither fail nor round.
fn has_order(family: &TypeFamily, of: Ordered) -> bool {
    match of {
        Ordered::BigInt => *family == TypeFamily::Integer,
        Ordered::Text => matches!(family, TypeFamily::Text | TypeFamily::Enum(_)),
        Ordered::Uuid => *family == TypeFamily::Uuid,
    }
}

/// Whether one table of keys serves columns of both: there is an operator for what writers call.
fn can_be_compared(plan: &Plan, one: &TypeFamily, other: &TypeFamily) -> bool {
    let is_number = |family: &TypeFamily| matches!(family, TypeFamily::Integer | TypeFamily::Numeric);
    let is_hashed_or_ordered = plan.scope.strategy().of().is_some();
    is_hashed_or_ordered || one == other || is_number(one) && is_number(other)
}

/// The result for the keys in each type of a column: those that the type writes differently, or why they are no values
/// of it.
type KeysByType<'a> = BTreeMap<&'a str, std::result::Result<Option<String>, String>>;

/// Each type is asked once, however many columns have it.
fn keys_by_type<'a>(
    connection: &mut Connection,
    keys: &[String],
    lines: &[ScopeLine<'a>],
) -> Result<KeysByType<'a>> {
    let mut known = KeysByType::new();
    for ScopeTable { column, .. } in lines.iter().filter_map(ScopeLine::table) {
        if known.contains_key(column.base.as_str()) {
            continue;
        }
        let query = format!(
            "SELECT string_agg(quote_literal(t), ', ') FROM unnest({}::text[]) t WHERE t <> t::{}::text",
            array_literal(keys),
            column.base
        );
        let cast = connection.undone(|connection| connection.run(&query));
        let answer = match cast {
            Ok(rows) => Ok(rows.scalar().map(str::to_owned)),
            Err(error) if error.is_verdict() => Err(error.message),
            Err(error) => return Err(error.into()),
        };
        known.insert(&column.base, answer);
    }
    Ok(known)
}

fn finding_of_keys(name: &str, keys: &KeysByType<'_>, table: ScopeTable<'_>) -> Finding {
    let ScopeTable { shape, column } = table;
    let hint = "Write the keys as the column's type does.";
    match keys.get(column.base.as_str()) {
        None => {
            let detail = format!("{}: column \"{}\" is of type {}", shape.name, column.name, column.base);
            Finding::new(name, true, detail, "")
        }
        Some(Ok(None)) => Finding::new(name, true, format!("{} are of type {}", shape.name, column.base), ""),
        Some(Ok(Some(keys))) => {
            Finding::new(name, false, format!("{}: {keys} as {}", shape.name, column.base), hint)
        }
        Some(Err(message)) => Finding::new(name, false, message.clone(), hint),
    }
}
