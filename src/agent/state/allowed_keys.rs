//! The tables `listed_<list>`, one for each key guard: the keys, buckets or ranges that belong there. Entries are never
//! removed. Ranges of one list neither overlap nor touch.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Column;
use crate::agent::state::key_list::{self, KeyList};
use crate::agent::state::moved_keys::comparable;
use crate::error::SqlState;
use crate::keys::interval::Interval;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::remote::template::{fill, sql};

const NAMES: &str = include_str!("../../../sql/agent/allow_names.sql");
const RANGES: &str = include_str!("../../../sql/agent/allow_ranges.sql");

/// The number of names in one statement, and of ranges in one message.
const NAMES_AT_ONCE: usize = 10_000;
const RANGES_AT_ONCE: usize = 200;

/// Whether the list's keys have the type that those of a column are compared as; a list that does not exist fits.
/// Buckets and ranges have the type of their keyspace.
pub fn list_fits(connection: &mut Connection, guard: &KeyList, column: &Column) -> Result<bool> {
    if guard.entries != Strategy::Directory {
        return Ok(true);
    }
    let compared_as = column.family().map_or("pg_catalog.text", |family| family.compared_as());
    let odd = connection.query(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
                         WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attname = 'key' AND NOT a.attisdropped
                           AND a.atttypid <> pg_catalog.to_regtype($2))",
        &[Some(&guard.table()), Some(compared_as)],
    )?;
    Ok(odd.scalar() != Some("t"))
}

/// Adds entries to the list, in an open transaction. Other sessions wait with their entries until its end: it writes
/// the guard's row, which no earlier snapshot can lock any more.
pub fn add(
    connection: &mut Connection,
    guard: &KeyList,
    names: &[String],
    keys_are: Option<KeyType>,
) -> Result<()> {
    key_list::next_version(connection, guard)?;
    match guard.entries {
        Strategy::Directory => {
            add_named(connection, guard, &with_and_without_blanks(&comparable(names, keys_are)))
        }
        Strategy::Hash { .. } => add_named(connection, guard, names),
        Strategy::Range { of } => add_ranges(connection, guard, of, names),
    }
}

/// Adds names, cast to the type of the list's own column: a name that cannot be cast is no key of its tables. They are
/// sent as parameters in batches, since one text cannot hold all.
fn add_named(connection: &mut Connection, guard: &KeyList, names: &[String]) -> Result<()> {
    let statement = fill(NAMES, &[("table", sql(guard.table()))]);
    for names in names.chunks(NAMES_AT_ONCE) {
        connection.query(&statement, &[Some(&text_array(names))])?;
    }
    Ok(())
}

/// Returns names as values of the list with and without trailing blanks. The list does not know whether its tables
/// have char(n), whose values are compared without trailing blanks.
fn with_and_without_blanks(names: &[String]) -> Vec<String> {
    let trimmed = |name: &String| {
        let trimmed = name.trim_end_matches(' ');
        (trimmed != name).then(|| trimmed.to_owned())
    };
    names.iter().cloned().chain(names.iter().filter_map(trimmed)).collect()
}

fn add_ranges(connection: &mut Connection, guard: &KeyList, of: Ordered, names: &[String]) -> Result<()> {
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    let value = |value: &str| format!("({value}::{}{collate})", of.as_str());
    let bound = |bound: &Option<String>| value(&bound.as_deref().map_or("NULL".to_owned(), literal));
    for names in names.chunks(RANGES_AT_ONCE) {
        let mut statements = Vec::new();
        for name in names {
            let Some(range) = Interval::parse(name, of) else {
                return Err(SplitError::failed(
                    SqlState::INTERNAL,
                    format!("range {name} of keyspace \"{}\" cannot be read", guard.keyspace),
                    "Please report this.",
                ));
            };
            let values = [
                ("lower", sql(bound(&range.lower))),
                ("upper", sql(bound(&range.upper))),
                ("touched", sql(touched(guard, &range, bound))),
                ("table", sql(guard.table())),
            ];
            statements.push(fill(RANGES, &values));
        }
        connection.run(&statements.join("; "))?;
    }
    Ok(())
}

/// Returns a condition for the ranges of the list that overlap or touch another one, found by their index: from the
/// one that begins last before it to its end, however many there are.
fn touched(guard: &KeyList, range: &Interval, bound: impl Fn(&Option<String>) -> String) -> String {
    let (table, lower, upper) = (guard.table(), bound(&range.lower), bound(&range.upper));
    let mut begins = Vec::new();
    if range.lower.is_some() {
        begins.push(format!(
            "l.lower OPERATOR(pg_catalog.>=) coalesce((SELECT b.lower FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {lower}
                                                        ORDER BY b.lower DESC LIMIT 1), {lower})"
        ));
    }
    if range.upper.is_some() {
        begins.push(format!("l.lower OPERATOR(pg_catalog.<=) {upper}"));
    }
    let begins = if begins.is_empty() { "true".to_owned() } else { begins.join(" AND ") };
    let ends = match range.lower {
        Some(_) => format!(" AND (l.upper IS NULL OR {lower} OPERATOR(pg_catalog.<=) l.upper)"),
        None => String::new(),
    };
    format!("(l.lower IS NULL OR {begins}){ends}")
}

/// Refuses a list of another kind of entries, which would admit, or keep out, the wrong keys.
pub fn require_same(guard: &KeyList, entries: Strategy) -> Result<()> {
    if guard.entries == entries {
        return Ok(());
    }
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "the guard of keyspace \"{}\" in namespace \"{}\" is for {}, not {}",
            guard.keyspace,
            guard.namespace,
            guard.entries.entries(),
            entries.entries()
        ),
        "It belongs to another keyspace of this name. See shard_cleanup() and shard_guard_remove().",
    ))
}
