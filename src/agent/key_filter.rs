//! The filters of redirects: an expression in the text of a lookup that is false for most keys that have not left, so
//! that their writers are spared the query.

use crate::agent::error::Result;
use crate::agent::filter::Filter;
use crate::agent::shape::Column;
use crate::agent::state::key_list::KeyList;
use crate::agent::state::moved_keys;
use crate::agent::types::TypeFamily;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::array_literal;

/// The greatest number of ranges that the lookup's text lists. If there are more, neighbours are joined, and values
/// between them are looked up, too.
const MAX_LITERAL_RANGES: usize = 512;

/// Returns the filter that admits values without a query, for one type of column.
pub(super) fn write(connection: &mut Connection, list: &KeyList, column: &Column) -> Result<String> {
    match list.entries {
        Strategy::Directory => filter_of_keys(connection, list, column),
        Strategy::Hash { of, buckets: count } => {
            let buckets = moved_keys::names(connection, list)?;
            Ok(filter_of_bits(&Filter::of_buckets(of, count, &buckets)))
        }
        Strategy::Range { of } => Ok(filter_of_ranges(&moved_keys::ranges(connection, list)?, of)),
    }
}

/// Makes a filter of the hashes that this server computes for the keys. A number that does not fit into an integer is
/// no key of an integer column.
fn filter_of_keys(connection: &mut Connection, list: &KeyList, column: &Column) -> Result<String> {
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
    let count = moved_keys::count(connection, list, moved_keys::WhoseEntries::Anybody)?;
    let mut filter = Filter::by_hash(hash, usize::try_from(count).unwrap_or(usize::MAX));
    for position in moved_keys::numbers(connection, list, &filter.position("key"), fits)? {
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
