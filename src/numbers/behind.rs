//! Compares sequences with the rows of two shards: after a restore of its shard, a sequence may still give out a
//! number that a row already has.

use super::rows::{greatest_within, is_behind, range_to_come};
use crate::numbers::introspect::{NumberColumn, ShardSequence};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeSet;

/// One of the two shards.
pub struct NumberEnd<'a> {
    pub session: &'a mut Connection,
    /// The qualified and quoted names of its tables by their positions; `None` if it has no such table, or the table
    /// is not checked.
    pub tables: Vec<Option<String>>,
    pub sequences: Vec<ShardSequence>,
}

/// A number that a row has and that a sequence has not given out yet.
pub struct NumberBehind {
    pub column: NumberColumn,
    pub number: i64,
    /// The shard of the row.
    pub shard: String,
    pub sequence: String,
    /// The shard of the sequence.
    pub of: String,
}

impl NumberBehind {
    pub fn text(&self) -> String {
        format!(
            "column \"{}\": a row on shard \"{}\" has {}, which sequence {} of shard \"{}\" has not given out yet",
            self.column.1, self.shard, self.number, self.sequence, self.of
        )
    }
}

/// The range that a sequence of one of the shards has not given out yet.
struct EndToCome {
    end: usize,
    sequence: ShardSequence,
    column: NumberColumn,
    range: [i64; 2],
}

/// Finds such numbers of sequences that have a range of their own, in the rows of both shards.
pub fn find(ends: &mut [NumberEnd<'_>; 2]) -> Result<Vec<NumberBehind>, RemoteError> {
    let mut all = Vec::new();
    for (end, of) in ends.iter().enumerate() {
        for sequence in &of.sequences {
            let Some(range) = range_to_come(sequence) else { continue };
            all.extend(sequence.sought.iter().map(|column| EndToCome {
                end,
                sequence: sequence.clone(),
                column: column.clone(),
                range,
            }));
        }
    }
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for holder in 0..ends.len() {
        for (at, number) in rows_of(&mut ends[holder], &all)? {
            let Some(EndToCome { end, sequence, column, .. }) = all.get(at) else { continue };
            if !is_behind(ends[*end].session, &sequence.oid, number)? || !known.insert(at) {
                continue;
            }
            found.push(NumberBehind {
                column: column.clone(),
                number,
                shard: ends[holder].session.shard().to_owned(),
                sequence: sequence.name.clone(),
                of: ends[*end].session.shard().to_owned(),
            });
        }
    }
    Ok(found)
}

/// Returns which of these ranges contain a number of the shard's rows.
fn rows_of(end: &mut NumberEnd<'_>, all: &[EndToCome]) -> Result<Vec<(usize, i64)>, RemoteError> {
    let is_there =
        |column: &NumberColumn| end.sequences.iter().any(|sequence| sequence.sought.contains(column));
    let mut queries = Vec::new();
    for (at, EndToCome { column, range, .. }) in all.iter().enumerate().filter(|(_, of)| is_there(&of.column))
    {
        let Some(Some(table)) = end.tables.get(column.0) else { continue };
        queries.push(format!("(SELECT {at}, {})", greatest_within(table, &column.1, *range)));
    }
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let query = queries.join(" UNION ALL ");
    let rows = end.session.undone(|session| session.run_unbounded(&query))?.rows;
    let read = |row: &Vec<Option<String>>| {
        let [Some(at), Some(number)] = row.as_slice() else { return None };
        Some((at.parse().ok()?, number.split('.').next()?.parse().ok()?))
    };
    Ok(rows.iter().filter_map(read).collect())
}
