//! The numbers in rows: some may come from no sequence, or from one that has lost its position.

use crate::agent::error::Result;
use crate::agent::reading;
use crate::agent::table_names::TableNames;
use crate::catalog::trusted_owner;
use crate::numbers::introspect::{NumberColumn, OnShard, ShardSequence};
use crate::remote::quote::ident;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::in_one;

/// The numbers that a sequence of a shard has not given out yet, and the columns that it fills.
struct RowsToCome {
    shard: usize,
    sequence: usize,
    columns: Vec<NumberColumn>,
    range: [i64; 2],
}

/// Reads on every shard the greatest number of each column, and finds rows with a number that a sequence of any shard
/// has not given out yet from a range of its own.
pub fn look(shards: &mut [OnShard]) -> Result<()> {
    let to_come: Vec<RowsToCome> = shards
        .iter()
        .enumerate()
        .flat_map(|(shard, on)| {
            on.sequences.iter().enumerate().filter_map(move |(sequence, of)| {
                let columns = of.sought.iter().cloned().collect();
                Some(RowsToCome { shard, sequence, columns, range: range_to_come(of)? })
            })
        })
        .collect();
    let mut behind = Vec::new();
    for on in shards.iter_mut() {
        let trusted = in_one(|| trusted_owner::of(&on.shard));
        let (tables, sequences) = (&on.tables, &mut on.sequences);
        // A shard without the tables has no such sequences.
        if sequences.is_empty() {
            continue;
        }
        behind.extend(reading::within(&mut on.session, tables, &trusted, |session| {
            greatest(session, tables, sequences)?;
            Ok(those_behind(session, tables, &to_come, sequences)?)
        })?);
    }
    for (at, number) in behind {
        let Some(RowsToCome { shard, sequence, .. }) = to_come.get(at) else { continue };
        let Some(on) = shards.get_mut(*shard) else { continue };
        let Some(sequence) = on.sequences.get_mut(*sequence) else { continue };
        sequence.is_behind |= is_behind(&mut on.session, &sequence.oid, number)?;
    }
    Ok(())
}

/// Whether a sequence has not reached a row's number, which may have been drawn since the sequence was read.
pub fn is_behind(session: &mut Connection, oid: &str, number: i64) -> std::result::Result<bool, RemoteError> {
    let now = session.query("SELECT pg_catalog.pg_sequence_last_value($1::oid::regclass)", &[Some(oid)])?;
    Ok(now.scalar().and_then(|last| last.parse::<i64>().ok()).is_none_or(|last| last < number))
}

/// Returns what a sequence has not given out yet from a range that somebody has set for it. An ordinary sequence has
/// no such range, since it can still give out any number.
pub fn range_to_come(sequence: &ShardSequence) -> Option<[i64; 2]> {
    let numbers = sequence.numbers;
    let is_own = numbers.increment > 0 && !numbers.cycles && sequence.is_bounded();
    let first = numbers.last.map_or(Some(numbers.min), |last| last.checked_add(1))?;
    (is_own && first <= numbers.max).then_some([first, numbers.max])
}

fn greatest(
    session: &mut Connection,
    tables: &TableNames,
    sequences: &mut [ShardSequence],
) -> std::result::Result<(), RemoteError> {
    let mut queries = Vec::new();
    for (number, sequence) in sequences.iter().enumerate() {
        for (position, column) in &sequence.sought {
            let Some(table) = tables.qualified(*position) else { continue };
            let column = ident(column);
            queries.push(format!(
                "(SELECT {number}, pg_catalog.max(t.{column})::pg_catalog.numeric::pg_catalog.text FROM {table} t)"
            ));
        }
    }
    if queries.is_empty() {
        return Ok(());
    }
    for row in session.run_unbounded(&queries.join(" UNION ALL "))?.rows {
        let [Some(number), Some(greatest)] = row.as_slice() else { continue };
        let number: usize = number.parse().unwrap_or(usize::MAX);
        let Some(sequence) = sequences.get_mut(number) else { continue };
        let greatest = whole(greatest).ok_or_else(|| {
            RemoteError::no_number(session.shard(), &format!("sequence {}", sequence.name), greatest)
        })?;
        sequence.in_rows = sequence.in_rows.max(Some(greatest));
    }
    Ok(())
}

/// Returns the sequences whose future numbers are in rows of this shard, with the greatest of these numbers.
fn those_behind(
    session: &mut Connection,
    tables: &TableNames,
    to_come: &[RowsToCome],
    sequences: &[ShardSequence],
) -> std::result::Result<Vec<(usize, i64)>, RemoteError> {
    let has_rows =
        |column: &&NumberColumn| sequences.iter().any(|sequence| sequence.sought.contains(*column));
    let mut queries = Vec::new();
    for (number, RowsToCome { columns, range, .. }) in to_come.iter().enumerate() {
        for (position, column) in columns.iter().filter(has_rows) {
            let Some(table) = tables.qualified(*position) else { continue };
            queries.push(format!("(SELECT {number}, {})", greatest_within(&table, column, *range)));
        }
    }
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let rows = session.run_unbounded(&queries.join(" UNION ALL "))?.rows;
    let read = |row: &Vec<Option<String>>| {
        let [Some(number), Some(greatest)] = row.as_slice() else { return None };
        Some((number.parse().ok()?, whole(greatest)?))
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// Returns the SQL after SELECT for the greatest number of a range in the rows of a table, which is NULL if there is
/// none.
pub fn greatest_within(table: &str, column: &str, [first, last]: [i64; 2]) -> String {
    let column = ident(column);
    format!(
        "pg_catalog.max(t.{column})::pg_catalog.numeric::pg_catalog.text FROM {table} t
          WHERE t.{column} >= {first} AND t.{column} <= {last}"
    )
}

/// Parses a number without its fraction; one that no sequence can reach becomes the greatest or the least number.
fn whole(text: &str) -> Option<i64> {
    let digits = text.split('.').next()?;
    if ["NaN", "Infinity"].contains(&digits) {
        return Some(i64::MAX);
    }
    let number = digits.strip_prefix('-').unwrap_or(digits);
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return (digits == "-Infinity").then_some(i64::MIN);
    }
    Some(digits.parse().unwrap_or(if digits.starts_with('-') { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_columns_are_read() {
        let cases = [
            ("17", Some(17)),
            ("-3.5", Some(-3)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999.1", Some(i64::MIN)),
            ("NaN", Some(i64::MAX)),
            ("Infinity", Some(i64::MAX)),
            ("-Infinity", Some(i64::MIN)),
            ("x", None),
            ("", None),
        ];
        for (text, number) in cases {
            assert_eq!(whole(text), number, "{text}");
        }
    }
}
