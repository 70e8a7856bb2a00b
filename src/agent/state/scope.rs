//! The tables `scope_<split>_s` and `scope_<split>_t`, one for each side: the scope of the split, as its triggers look
//! it up.

use crate::agent::error::Result;
use crate::agent::scope::range_rows;
use crate::agent::session::Side;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::{Scope, ScopeEntries};
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

pub fn table(split: i64, side: Side) -> String {
    format!("scope_{split}_{}", side.suffix())
}

fn qualified(split: i64, side: Side) -> String {
    format!("shardmaster_agent.{}", table(split, side))
}

pub fn drop(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    connection.run(&format!("DROP TABLE IF EXISTS {}", qualified(split, side)))?;
    Ok(())
}

/// Returns the columns of entries in one of the agent's tables. `key_type`: the type of a directory's keys.
pub fn entry_columns(entries: Strategy, key_type: &str) -> String {
    match entries {
        Strategy::Directory => format!("key {key_type} PRIMARY KEY"),
        Strategy::Hash { .. } => "key int4 PRIMARY KEY".to_owned(),
        Strategy::Range { of } => {
            let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
            format!("lower {0}{collate}, upper {0}{collate}", of.as_str())
        }
    }
}

/// Returns the keys or buckets in one of the agent's tables that a condition selects.
pub fn names(connection: &mut Connection, table: &str, condition: &str) -> Result<Vec<String>> {
    let rows = connection.run(&format!("SELECT key::text FROM {table} WHERE {condition}"))?;
    Ok(rows.rows.into_iter().flatten().flatten().collect())
}

/// Returns the ranges in one of the agent's tables that a condition selects, in their order.
pub fn ranges(connection: &mut Connection, table: &str, condition: &str) -> Result<Vec<Interval>> {
    // The order is by the table's own column, not by its text in the output.
    let rows = connection.run(&format!(
        "SELECT lower::text, upper::text FROM {table} l WHERE {condition} ORDER BY l.lower NULLS FIRST"
    ))?;
    let interval = |row: Vec<Option<String>>| {
        <[_; 2]>::try_from(row).ok().map(|[lower, upper]| Interval { lower, upper })
    };
    Ok(rows.rows.into_iter().filter_map(interval).collect())
}

/// Returns the scope that such rows make.
pub fn entries(
    connection: &mut Connection,
    table: &str,
    entries: Strategy,
    condition: &str,
) -> Result<Scope> {
    Ok(match entries.order() {
        Some(of) => Scope::Ranges { of, ranges: ranges(connection, table, condition)? },
        None => entries.scope(&names(connection, table, condition)?),
    })
}

/// Returns the scope of the source of a split.
pub fn read(connection: &mut Connection, split: i64, of: Strategy) -> Result<Scope> {
    of_side(connection, split, Side::Source, of)
}

/// Returns the scope of either side.
pub fn of_side(connection: &mut Connection, split: i64, side: Side, of: Strategy) -> Result<Scope> {
    entries(connection, &qualified(split, side), of, "true")
}

/// Removes what another split brings back from the scope of a source, in a transaction.
pub fn release(connection: &mut Connection, split: i64, back: &Scope, names: &[String]) -> Result<()> {
    let table = qualified(split, Side::Source);
    match back.entries() {
        ScopeEntries::Named(_) => {
            connection.run(&format!(
                "DELETE FROM {table} WHERE key::text = ANY ({}::text[])",
                array_literal(names)
            ))?;
            Ok(())
        }
        ScopeEntries::Ranges(of, ranges) => release_ranges(connection, &table, of, ranges),
    }
}

/// Removes ranges; of a range that is brought back in part, the rest stays. Two splits may each bring back a part of
/// it: the second one waits, and finds what the first has left.
fn release_ranges(connection: &mut Connection, table: &str, of: Ordered, back: &[Interval]) -> Result<()> {
    connection.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))?;
    let rows = connection.run(&format!("SELECT key FROM {table}"))?;
    for name in rows.column() {
        let Some(range) = Interval::parse(&name, of) else { continue };
        let Some(left) = range.without_all(back, of) else { continue };
        let rest = if left.is_empty() {
            String::new()
        } else {
            format!("INSERT INTO {table} VALUES {} ON CONFLICT DO NOTHING;", range_rows(&left, of))
        };
        connection.run(&format!("DELETE FROM {table} WHERE key = {}; {rest}", literal(&name)))?;
    }
    Ok(())
}
