//! Sequences and the rows of two shards: a number that is in a row already and that a sequence is yet to give out, as after a
//! restore of its shard.

use super::look::{NumberColumn, ShardSequence};
use super::rows::{greatest_within, is_behind, range_to_come};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeSet;

/// One of the two.
pub struct NumberEnd<'a> {
    pub session: &'a mut Connection,
    /// Its tables by their positions, qualified and quoted; None: it has no such table, or it is not looked at.
    pub tables: Vec<Option<String>>,
    pub sequences: Vec<ShardSequence>,
}

/// Such a number.
pub struct NumberBehind {
    pub column: NumberColumn,
    pub number: i64,
    /// Where the row is.
    pub shard: String,
    pub sequence: String,
    /// Where the sequence is.
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

/// What a sequence of one of the ends is yet to give out.
struct EndToCome {
    end: usize,
    sequence: ShardSequence,
    column: NumberColumn,
    range: [i64; 2],
}

/// Those of numbers that a shard has for itself, in the rows of both.
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

/// Which of these numbers rows of an end have.
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
