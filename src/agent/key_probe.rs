//! The look-ups of a redirect: the functions that its triggers call with the key of a row, one pair for each type of
//! shard-by column.

use crate::agent::error::Result;
use crate::agent::filter::Filter;
use crate::agent::scope::bucket_for_writers;
use crate::agent::shape::Column;
use crate::agent::state::redirect::Redirect;
use crate::agent::state::{moved_keys, redirect as redirects};
use crate::agent::types::TypeFamily;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::array_literal;
use crate::remote::template::{fill, number, sql, text, word};

const LOOK_UP: &str = include_str!("../../sql/agent/redirect_lookup.sql");

/// The greatest number of ranges that the look-up's text lists. If there are more, neighbours are joined, and values
/// between them are looked up, too.
const MAX_LITERAL_RANGES: usize = 512;

/// Returns a shard-by column with the properties that a look-up depends on.
fn column_type(base: &str, is_enum: bool) -> Column {
    Column { base: base.to_owned(), is_enum, ..Column::default() }
}

impl Redirect {
    /// Returns the look-up for one type of column, with a filter of what has left.
    fn look_up(&self, column: &Column, version: i64, filter: &str) -> String {
        fill(
            LOOK_UP,
            &[
                ("function", word(self.function())),
                ("filter_function", word(self.filter_function())),
                ("security", sql(self.security_of_filter())),
                ("type", sql(column.base.as_str())),
                ("filter", sql(filter)),
                ("namespace", text(&self.namespace)),
                ("keyspace", text(&self.keyspace)),
                ("id", number(self.id)),
                ("version", number(version)),
                ("found", sql(self.found(column))),
            ],
        )
    }

    /// A writer may not call anything in the agent's schema by its name. The server's own functions need no rights, so
    /// without such a call the change of role is saved.
    fn security_of_filter(&self) -> &'static str {
        match self.entries {
            Strategy::Hash { .. } => "SECURITY DEFINER",
            Strategy::Directory | Strategy::Range { .. } => "SECURITY INVOKER",
        }
    }

    /// Returns a query for the rows of the table that stand for the value `wanted`.
    fn found(&self, column: &Column) -> String {
        let table = self.table();
        match self.entries {
            Strategy::Directory => {
                let value = key_of(column);
                format!(
                    "(SELECT l.shard, l.version FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) {value})"
                )
            }
            Strategy::Hash { of, buckets: count } => {
                // This is a query of its own; otherwise the value would be hashed anew for each row.
                let bucket = bucket_for_writers("wanted", of, count);
                format!(
                    "(SELECT l.shard, l.version FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) (SELECT {bucket}))"
                )
            }
            // Ranges do not overlap, so the last one that begins below the value decides.
            Strategy::Range { of } => {
                let value = ordered("wanted", of);
                format!(
                    "(SELECT l.shard, l.version
                        FROM (SELECT * FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {value} ORDER BY b.lower DESC LIMIT 1) l
                       WHERE l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper
                       UNION ALL
                      SELECT l.shard, l.version FROM {table} l
                       WHERE l.lower IS NULL AND (l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper))"
                )
            }
        }
    }
}

/// Returns SQL for the value `wanted` of a column in the form in which keys are compared.
pub(super) fn key_of(column: &Column) -> String {
    match &column.family() {
        // This is not a cast, since the owner of an enum could have made one.
        Some(TypeFamily::Enum(_)) | None => "pg_catalog.format('%s', wanted)".to_owned(),
        Some(family) => format!("wanted::{}", family.compared_as()),
    }
}

/// Writes the look-up anew for each type of column: the existing ones and the given ones. The number in their texts is
/// that of the row from this commit on.
pub fn write(connection: &mut Connection, redirect: &Redirect, columns: &[&Column]) -> Result<()> {
    let version = redirects::next_version(connection, redirect)?;
    let mut types = known_types(connection, &redirect.function())?;
    for column in columns {
        if !types.iter().any(|known| known.base == column.base) {
            types.push(column_type(&column.base, column.is_enum));
        }
    }
    for column in &types {
        let filter = filter(connection, redirect, column)?;
        connection.run(&redirect.look_up(column, version, &filter))?;
    }
    Ok(())
}

pub fn drop(connection: &mut Connection, redirect: &Redirect) -> Result<()> {
    for column in known_types(connection, &redirect.function())? {
        for function in [redirect.function(), redirect.filter_function()] {
            connection.run(&format!("DROP FUNCTION shardmaster_agent.{function}({})", column.base))?;
        }
    }
    Ok(())
}

/// Returns the types of column for which a look-up of this name exists.
pub(super) fn known_types(connection: &mut Connection, function: &str) -> Result<Vec<Column>> {
    let rows = connection.query(
        "SELECT format_type(t.oid, -1), t.typtype = 'e'
           FROM pg_proc p JOIN pg_type t ON t.oid = p.proargtypes[0]
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.proname = $1 ORDER BY t.oid",
        &[Some(function)],
    )?;
    let columns = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(base), Some(is_enum)] => Some(column_type(base, is_enum == "t")),
        _ => None,
    });
    Ok(columns.collect())
}

/// Returns the filter that admits values without a query, for one type of column.
fn filter(connection: &mut Connection, redirect: &Redirect, column: &Column) -> Result<String> {
    match redirect.entries {
        Strategy::Directory => filter_of_keys(connection, redirect, column),
        Strategy::Hash { of, buckets: count } => {
            let buckets = moved_keys::names(connection, redirect)?;
            Ok(filter_of_bits(&Filter::of_buckets(of, count, &buckets)))
        }
        Strategy::Range { of } => Ok(filter_of_ranges(&moved_keys::ranges(connection, redirect)?, of)),
    }
}

/// Makes a filter of the hashes that this server computes for the keys. A number that does not fit into an integer is
/// no key of an integer column.
fn filter_of_keys(connection: &mut Connection, redirect: &Redirect, column: &Column) -> Result<String> {
    let (hash, fits) = match column.family() {
        Some(TypeFamily::Integer) => (
            "pg_catalog.hashint8extended({value}::pg_catalog.int8, 0)",
            "key = trunc(key) AND key BETWEEN -9223372036854775808 AND 9223372036854775807",
        ),
        Some(TypeFamily::Numeric) => ("pg_catalog.hash_numeric_extended({value}, 0)", "true"),
        Some(TypeFamily::Text) => ("pg_catalog.hashtextextended({value}::pg_catalog.text, 0)", "true"),
        // This is not a cast, since the owner of an enum could have made one.
        Some(TypeFamily::Enum(_)) => {
            ("pg_catalog.hashtextextended(pg_catalog.format('%s', {value}), 0)", "true")
        }
        Some(TypeFamily::Uuid) => ("pg_catalog.uuid_hash_extended({value}, 0)", "true"),
        None => return Ok("true".to_owned()),
    };
    let count = moved_keys::count(connection, redirect, moved_keys::WhoseEntries::Anybody)?;
    let mut filter = Filter::by_hash(hash, usize::try_from(count).unwrap_or(usize::MAX));
    for position in moved_keys::numbers(connection, redirect, &filter.position("key"), fits)? {
        filter.set(position);
    }
    Ok(filter_of_bits(&filter))
}

/// Returns SQL that tests whether a value may have left.
fn filter_of_bits(filter: &Filter) -> String {
    format!("{} OPERATOR(pg_catalog.=) 1", filter.test("wanted"))
}

/// Returns SQL that tests whether a value may have left, for ranges in their order: a binary search finds the bounds
/// that the value lies between. Behind an odd number of bounds it is in a range; an open lower bound counts as one.
fn filter_of_ranges(ranges: &[Interval], of: Ordered) -> String {
    let mut joined: Vec<Interval> = Vec::new();
    let group = ranges.len().div_ceil(MAX_LITERAL_RANGES).max(1);
    for (position, range) in ranges.iter().enumerate() {
        match joined.last_mut() {
            Some(last) if position % group != 0 || last.upper == range.lower => {
                last.upper.clone_from(&range.upper);
            }
            _ => joined.push(range.clone()),
        }
    }
    let open = usize::from(joined.first().is_some_and(|first| first.lower.is_none()));
    let bounds: Vec<String> =
        joined.into_iter().flat_map(|range| [range.lower, range.upper]).flatten().collect();
    // The E makes it independent of the writer's standard_conforming_strings.
    let array =
        format!("E{}::pg_catalog.{}[]", array_literal(&bounds).replace('\\', "\\\\"), catalog_name(of));
    let value = ordered("wanted", of);
    format!(
        "(pg_catalog.width_bucket({value}, {array}) OPERATOR(pg_catalog.+) {open}) OPERATOR(pg_catalog.%) 2
            OPERATOR(pg_catalog.=) 1"
    )
}

fn catalog_name(of: Ordered) -> &'static str {
    match of {
        Ordered::BigInt => "int8",
        Ordered::Text => "text",
        Ordered::Uuid => "uuid",
    }
}

/// Returns SQL for a value in the type by which its ranges are ordered.
pub(super) fn ordered(value: &str, of: Ordered) -> String {
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    format!("({value}::pg_catalog.{}{collate})", catalog_name(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn ranges(bounds: &[(Option<i64>, Option<i64>)]) -> Vec<Interval> {
        let bound = |bound: Option<i64>| bound.map(|number| number.to_string());
        bounds.iter().map(|(lower, upper)| Interval { lower: bound(*lower), upper: bound(*upper) }).collect()
    }

    #[test]
    fn what_entries_are_is_read_back() {
        let count = NonZeroU32::new(16).unwrap();
        for entries in [
            Strategy::Directory,
            Strategy::Hash { of: Ordered::Uuid, buckets: count },
            Strategy::Range { of: Ordered::Text },
        ] {
            assert_eq!(Strategy::of_entries(&entries.entries()), Some(entries));
        }
        assert_eq!(Strategy::of_entries("0 buckets of text"), None);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let text = filter_of_ranges(
            &ranges(&[(Some(1), Some(5)), (Some(5), Some(9)), (Some(20), None)]),
            Ordered::BigInt,
        );
        assert!(
            text.contains("E'{\"1\",\"9\",\"20\"}'::pg_catalog.int8[]) OPERATOR(pg_catalog.+) 0"),
            "{text}"
        );
    }

    #[test]
    fn an_open_lower_bound_counts_as_one() {
        let text = filter_of_ranges(&ranges(&[(None, Some(5)), (Some(7), Some(9))]), Ordered::BigInt);
        assert!(
            text.contains("E'{\"5\",\"7\",\"9\"}'::pg_catalog.int8[]) OPERATOR(pg_catalog.+) 1"),
            "{text}"
        );
    }

    #[test]
    fn the_list_of_ranges_is_bounded() {
        let many: Vec<(Option<i64>, Option<i64>)> =
            (0..10_000).map(|n| (Some(10 * n), Some(10 * n + 5))).collect();
        let text = filter_of_ranges(&ranges(&many), Ordered::BigInt);
        assert!(text.matches('"').count() <= 4 * MAX_LITERAL_RANGES, "{}", text.len());
    }
}
