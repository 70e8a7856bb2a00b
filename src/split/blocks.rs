//! A walk over the blocks of a leaf, in spans that each take about a step's time: how rows are
//! copied, and deleted again. In one snapshot a row has one ctid, so a span costs its own blocks
//! only.

use crate::agent::error::Result;
use crate::guc;
use crate::remote::quote::array_of;
use crate::remote::{Connection, RemoteError, number};
use std::time::Duration;

/// A leaf as it is now.
pub struct Extent {
    pub name: String,
    pub blocks: i64,
    /// Of all of it, with what is stored out of line.
    pub bytes: i64,
    /// The file that these are of: a rewrite gives another one, with the rows in other blocks.
    pub file: Option<String>,
}

/// Bytes of rows that are brought over at a time.
const MOST_BYTES: i64 = 256 << 20;

impl Extent {
    /// Blocks whose rows are likely to have no more bytes than that: long values are stored elsewhere, and thousands of
    /// them may be of a few blocks.
    pub fn most_blocks(&self) -> i64 {
        let of_a_block = self.bytes / self.blocks.max(1);
        (MOST_BYTES / of_a_block.max(1)).max(1)
    }
}

/// What is known of a leaf by its oid or name.
pub fn of_leaf(connection: &mut Connection, leaf: &str) -> Result<Extent> {
    let extent = of_leaves(connection, &[leaf])?.into_iter().next();
    extent.ok_or_else(|| {
        RemoteError::no_number(connection.shard(), "the number of a table's blocks", "nothing").into()
    })
}

/// The same of several, in their order.
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

/// Blocks from one to before another; None: to the end. The last span has no upper bound, so no
/// row can lie behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSpan {
    pub from: i64,
    pub to: Option<i64>,
}

impl BlockSpan {
    /// The next blocks of a leaf that has `total`; few rows, which an index finds, are one span.
    pub fn next(from: i64, blocks: i64, total: i64, few: bool) -> BlockSpan {
        let to = from + blocks;
        BlockSpan { from, to: (to < total && !few).then_some(to) }
    }

    /// The rows `t` in these blocks that a condition holds for. Without a bound the planner is
    /// free to take an index.
    pub fn condition(self, rows: &str) -> String {
        let lower = match self.from {
            0 => String::new(),
            from => format!("t.ctid >= '({from},0)'::tid AND "),
        };
        let upper = self.to.map_or(String::new(), |to| format!(" AND t.ctid < '({to},0)'::tid"));
        format!("{lower}{rows}{upper}")
    }
}

/// The factor that brings a span which took so long to the time of a step.
pub fn by_time(took: Duration) -> f64 {
    guc::step_time().as_secs_f64() / took.as_secs_f64().max(0.001)
}

/// The size of the next span. Doubling at most: one that was lucky does not make the next one
/// long.
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
        // Nothing out of line; a megabyte a block; two gigabytes of one block; empty.
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
