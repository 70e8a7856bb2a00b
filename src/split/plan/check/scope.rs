//! The columns by which rows belong to keys: the list of what is known to be right.

use super::encoding;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::{Column, Observation, TableShape};
use crate::agent::state::side::{self, Installed};
use crate::agent::types::Family;
use crate::catalog::split::Plan;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::remote::quote::{array_literal, ident};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError, number};
use crate::split::finding::Finding;

/// The shard-by columns, and rows of the scope where none must be.
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
        let hint = failure.hint.unwrap_or_default();
        findings.push(Finding::new(&label("number of the split"), false, failure.message, &hint));
    }
    let mut first: Option<(&TableShape, &Column, Family)> = None;
    let mut is_text = false;
    for (policy, shape) in plan.tables.iter().zip(&observation.tables) {
        let Some(column) = shape.column(&policy.shard_by) else { continue };
        let family = match family(plan, shape, column) {
            Ok(family) => family,
            Err((problem, hint)) => {
                findings.push(Finding::new(&label("shard-by columns"), false, problem, hint));
                continue;
            }
        };
        is_text |= matches!(family, Family::Text | Family::Enum(_));
        match &first {
            Some((other, with, known)) if !can_be_compared(plan, known, &family) => {
                let problem = format!(
                    "{}: column \"{}\" is of type {}, {}: column \"{}\" is of type {}",
                    other.name, with.name, with.base, shape.name, column.name, column.base
                );
                let hint = "Give the shard-by columns of a keyspace one type.";
                findings.push(Finding::new(&label("shard-by columns"), false, problem, hint));
                continue;
            }
            Some(_) => {}
            None => first = Some((shape, column, family)),
        }
        findings.push(match plan.scope.keys() {
            Some(keys) => keys_of_type(connection, &label("keys"), keys, shape, column)?,
            None => Finding::new(
                &label("keys"),
                true,
                format!("{}: column \"{}\" is of type {}", shape.name, column.name, column.base),
                "",
            ),
        });
        // A split that goes back finds its rows where they have been.
        let is_empty_before = installed == Installed::No && plan.reverse_of.is_none();
        if side == Side::Target && is_empty_before && findings.last().is_some_and(|f| f.ok) {
            findings.push(rows_on_target(plan, connection, shape, column)?);
        }
        if side == Side::Source && plan.moves_all && findings.last().is_some_and(|f| f.ok) {
            findings.push(rows_that_stay(plan, connection, shape, column)?);
        }
    }
    if is_text {
        findings.extend(encoding::of_keys(plan, &label("encoding"), &observation.encoding));
    }
    Ok(())
}

/// What a column's values are as keys; an error: what is wrong with it and what to do.
fn family(
    plan: &Plan,
    shape: &TableShape,
    column: &Column,
) -> std::result::Result<Family, (String, &'static str)> {
    let is = format!("{}: column \"{}\" is of type {}", shape.name, column.name, column.base);
    let Some(family) = column.family() else {
        let hint = "Shard by a column of type smallint, integer, bigint, numeric, text, varchar, char, uuid or an enum.";
        return Err((format!("{is}, whose values are no keys"), hint));
    };
    if let Some(equality) = &column.equality {
        let hint = "Give the column a deterministic collation, which routing goes by.";
        return Err((format!("{is} with a nondeterministic collation ({equality})"), hint));
    }
    let fits = match (plan.scope.strategy().of(), plan.key_type) {
        (Some(of), _) => has_order(&family, of),
        (None, Some(key_type)) => match key_type {
            KeyType::SmallInt | KeyType::Integer | KeyType::BigInt | KeyType::Numeric => {
                matches!(family, Family::Integer | Family::Numeric)
            }
            KeyType::Text | KeyType::VarChar | KeyType::Char => {
                matches!(family, Family::Text | Family::Enum(_))
            }
            KeyType::Uuid => family == Family::Uuid,
        },
        // Keys taken as text: of numeric, one value has many.
        (None, None) => family != Family::Numeric,
    };
    let keys = plan.key_type.map_or("text", KeyType::name);
    let hint = "Make the column of the keyspace's key type, or the keyspace of the column's.";
    if fits { Ok(family) } else { Err((format!("{is}, keys of the keyspace are of type {keys}"), hint)) }
}

/// Whether values are hashed and ordered as what their keys are. A cast must neither fail
/// nor round.
fn has_order(family: &Family, of: Ordered) -> bool {
    match of {
        Ordered::BigInt => *family == Family::Integer,
        Ordered::Text => matches!(family, Family::Text | Family::Enum(_)),
        Ordered::Uuid => *family == Family::Uuid,
    }
}

/// Whether one table of keys serves columns of both: what writers call has an operator.
fn can_be_compared(plan: &Plan, one: &Family, other: &Family) -> bool {
    let is_number = |family: &Family| matches!(family, Family::Integer | Family::Numeric);
    let is_hashed_or_ordered = plan.scope.strategy().of().is_some();
    is_hashed_or_ordered || one == other || is_number(one) && is_number(other)
}

/// The keys in the column's own type.
fn keys_of_type(
    connection: &mut Connection,
    name: &str,
    keys: &[String],
    shape: &TableShape,
    column: &Column,
) -> Result<Finding> {
    let cast = connection.run(&format!(
        "SELECT string_agg(quote_literal(t), ', ') FROM unnest({}::text[]) t WHERE t <> t::{}::text",
        array_literal(keys),
        column.base
    ));
    let hint = "Write the keys as the column's type does.";
    Ok(match cast {
        Ok(rows) => match rows.scalar() {
            None => Finding::new(name, true, format!("{} are of type {}", shape.name, column.base), ""),
            Some(keys) => {
                Finding::new(name, false, format!("{}: {keys} as {}", shape.name, column.base), hint)
            }
        },
        Err(error) if error.is_verdict() => Finding::new(name, false, error.message, hint),
        Err(error) => return Err(error.into()),
    })
}

/// Reads a table with the scope's condition, for as long as it takes.
pub(super) fn look_through(
    plan: &Plan,
    connection: &mut Connection,
    shape: &TableShape,
    column: &Column,
    query: impl Fn(&str) -> String,
) -> std::result::Result<Rows, RemoteError> {
    let (functions, predicate) = plan.scope.dry_predicate(column, "t");
    connection.run(&format!("BEGIN; {functions}"))?;
    let found = connection
        .run_unbounded(&query(&predicate))
        .map_err(|error| error.asked(&format!("rows by their keys in {}", shape.name)));
    // Where it fails, too, the next question finds the reason.
    let _ = connection.run("ROLLBACK");
    found
}

fn rows_on_target(
    plan: &Plan,
    connection: &mut Connection,
    shape: &TableShape,
    column: &Column,
) -> Result<Finding> {
    let found = look_through(plan, connection, shape, column, |predicate| {
        format!("SELECT t.{}::text FROM {} t WHERE {predicate} LIMIT 1", ident(&column.name), shape.name)
    });
    let name = "target: no rows of the keys yet";
    match found {
        Ok(rows) => Ok(match rows.scalar() {
            None => Finding::new(name, true, shape.name.clone(), ""),
            Some(key) => Finding::new(
                name,
                false,
                format!("{} holds rows of key \"{key}\"", shape.name),
                "Delete them, or assign the key to this shard if they are its rows.",
            ),
        }),
        Err(error) if error.is("42501") => {
            Ok(Finding::new(name, false, error.message, "Grant the table's owner to the mover."))
        }
        Err(error) => Err(error.into()),
    }
}

/// Rows that stay on a source of which everything is to move: of keys that are not routed
/// to it, or without a key.
fn rows_that_stay(
    plan: &Plan,
    connection: &mut Connection,
    shape: &TableShape,
    column: &Column,
) -> Result<Finding> {
    const COUNTED: i64 = 1000;
    let found = look_through(plan, connection, shape, column, |predicate| {
        format!(
            "SELECT count(*) - count(s.key), count(s.key), min(s.key)
               FROM (SELECT t.{}::text AS key FROM {} t WHERE ({predicate}) IS NOT TRUE LIMIT {}) s",
            ident(&column.name),
            shape.name,
            COUNTED + 1
        )
    });
    let name = "source: rows that stay";
    let rows = match found {
        Ok(rows) => rows,
        Err(error) if error.is("42501") => {
            return Ok(Finding::new(name, false, error.message, "Grant the table's owner to the mover."));
        }
        Err(error) => return Err(error.into()),
    };
    let cells: Vec<&str> = rows.rows.iter().flatten().map(|cell| cell.as_deref().unwrap_or("")).collect();
    let count = |at: usize| number::count(connection.shard(), "the number of rows", cells.get(at).copied());
    let (without, others) = (count(0)?, count(1)?);
    if without + others == 0 {
        return Ok(Finding::new(name, true, format!("{}: none", shape.name), ""));
    }
    let mut kinds = Vec::new();
    if without > 0 {
        kinds.push(format!("{without} without a key"));
    }
    if others > 0 {
        let example = cells.get(2).copied().unwrap_or_default();
        kinds.push(format!("{others} of keys that are not routed to the source, such as \"{example}\""));
    }
    let seen = if without + others > COUNTED { "at least " } else { "" };
    let hint = "They are not moved and not deleted. To move a key with the others, shard_assign() it to the source and plan again.";
    Ok(Finding::note(name, format!("{}: {seen}{}", shape.name, kinds.join(", ")), hint))
}
