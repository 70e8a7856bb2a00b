//! Iteration over the blocks of a leaf, in spans that each take about a step's time, for copying and for deleting
//! rows. In one snapshot a row has one ctid, so a span costs only its own blocks.

use crate::agent::error::Result;
use crate::guc;
use crate::remote::quote::array_of;
use crate::remote::{Connection, RemoteError, number};
use std::fmt;
use std::time::Duration;

/// A leaf as it is now.
pub struct Extent {
    pub name: String,
    pub blocks: i64,
    /// The bytes of the whole leaf, including values that are stored out of line.
    pub bytes: i64,
    /// The file that the numbers are of: a rewrite gives another one, with the rows in other blocks.
    pub file: Option<String>,
}

/// The greatest number of bytes of rows that are copied at a time.
const MOST_BYTES: i64 = 256 << 20;

impl Extent {
    /// Returns the number of blocks whose rows are unlikely to have more bytes than that: long values are stored out
    /// of line, so thousands of them may belong to a few blocks.
    pub fn most_blocks(&self) -> i64 {
        let of_a_block = self.bytes / self.blocks.max(1);
        (MOST_BYTES / of_a_block.max(1)).max(1)
    }
}

/// Returns the extent of a leaf, given by its oid or name.
pub fn of_leaf(connection: &mut Connection, leaf: &str) -> Result<Extent> {
    let extent = of_leaves(connection, &[leaf])?.into_iter().next();
    extent.ok_or_else(|| {
        RemoteError::no_number(connection.shard(), "the number of a table's blocks", "nothing").into()
    })
}

/// Returns the extents of several leaves, in their order.
pub fn of_leaves(connection: &mut Connection, leaves: &[&str]) -> Result<Vec<Extent>> {
    let rows = connection.query(
        "SELECT pg_relation_size(l.oid) / current_setting('block_size')::bigint, l.oid::text,
                pg_relation_filenode(l.oid), pg_table_size(l.oid)
           FROM unnest($1::regclass[]) WITH ORDINALITY l (oid, number) ORDER BY l.number",
        &[Some(&array_of(leaves.iter().map(|leaf| Some(*leaf))))],
    )?;
    let extent = |row: Vec<Option<String>>| {
        let blocks = number::blocks(connection.shard(), row.first().and_then(Option::as_deref))?;
        let mut cells = row.into_iter().skip(1);
        let name = cells.next().flatten().unwrap_or_default();
        let file = cells.next().flatten();
        let bytes =
            number::count(connection.shard(), "the size of a table", cells.next().flatten().as_deref())?;
        Ok(Extent { name, blocks, bytes, file })
    };
    rows.rows.into_iter().map(extent).collect()
}

/// Rows `t` of a leaf, by its name and a condition. Displayed as the part of a query after FROM.
#[derive(Clone, Copy)]
pub struct LeafRows<'a> {
    pub leaf: &'a str,
    pub condition: &'a str,
}

impl fmt::Display for LeafRows<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ONLY {} t WHERE {}", self.leaf, self.condition)
    }
}

/// Blocks from one to before another. If `to` is `None`, the span has no end, so that no row can be behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSpan {
    pub from: i64,
    pub to: Option<i64>,
}

impl BlockSpan {
    /// Returns the next blocks of a leaf that has `total`. Few rows, which an index finds, are one span.
    pub fn next(from: i64, blocks: i64, total: i64, few: bool) -> BlockSpan {
        let to = from + blocks;
        BlockSpan { from, to: (to < total && !few).then_some(to) }
    }

    /// Returns the condition for the rows `t` in these blocks. Without a bound the planner is free to use an index.
    pub fn condition(self, rows: &str) -> String {
        let lower = match self.from {
            0 => String::new(),
            from => format!("t.ctid >= '({from},0)'::tid AND "),
        };
        let upper = self.to.map_or(String::new(), |to| format!(" AND t.ctid < '({to},0)'::tid"));
        format!("{lower}{rows}{upper}")
    }
}

/// Returns the factor that adjusts a span of this duration to the time of a step.
pub fn by_time(took: Duration) -> f64 {
    guc::step_time().as_secs_f64() / took.as_secs_f64().max(0.001)
}

/// Returns the size of the next span. It at most doubles, so that one fast span does not make the next one long.
pub fn adapt(blocks: i64, factor: f64, least: i64, most: i64) -> i64 {
    ((blocks as f64 * factor.clamp(0.1, 2.0)) as i64).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_long_values_are_few() {
        let extent =
            |blocks: i64, bytes: i64| Extent { name: String::new(), blocks, bytes, file: None }.most_blocks();
        // The cases: nothing out of line; a megabyte a block; two gigabytes in one block; empty.
        let most = [(1 << 20, 8 << 30), (1000, 1000 << 20), (1, 2 << 30), (0, 0), (0, 1 << 40)];
        assert_eq!(most.map(|(blocks, bytes)| extent(blocks, bytes)), [32 << 10, 256, 1, 256 << 20, 1]);
    }

    #[test]
    fn spans_meet_and_the_last_one_is_open() {
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let span = BlockSpan::next(from, 4, 10, false);
            seen.push(span.condition("x"));
            let Some(to) = span.to else { break };
            from = to;
        }
        assert_eq!(
            seen,
            [
                "x AND t.ctid < '(4,0)'::tid",
                "t.ctid >= '(4,0)'::tid AND x AND t.ctid < '(8,0)'::tid",
                "t.ctid >= '(8,0)'::tid AND x"
            ]
        );
        assert_eq!(BlockSpan::next(0, 4, 10, true).condition("x"), "x");
    }

    #[test]
    fn a_span_grows_and_shrinks_within_bounds() {
        assert_eq!([0.5, 100.0, 0.0].map(|factor| adapt(100, factor, 20, 150)), [50, 150, 20]);
    }
}
