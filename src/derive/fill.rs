//! Fills a derived column in the rows that were there before: a few blocks at a time, each in a transaction that is
//! short enough that nobody waits for its locks.
//!
//! Invariant: a batch changes only rows without a value, and takes it from the row that they lead to. A value that
//! changes meanwhile is passed on by its trigger: whoever comes second waits for the row, and looks at it again.

use super::install::{self, DerivedNames};
use super::shape::DerivedShape;
use crate::agent::blocks::{self, BlockSpan};
use crate::agent::error::{Result, SplitError};
use crate::catalog::job::JobPlace;
use crate::remote::Connection;
use std::time::{Duration, Instant};

/// How long a batch is to take.
const LONG: f64 = 0.04;
const FEWEST: i64 = 1;
const MOST: i64 = 2_000;
const FIRST: i64 = 16;
const UNDEFINED_TABLE: &str = "42P01";

/// What a pass over a table's blocks has found.
pub struct Pass {
    /// The number of blocks of the next batch.
    blocks: i64,
    /// How many rows this pass has filled.
    filled: i64,
}

impl Pass {
    /// How many rows were filled.
    pub fn filled(&self) -> i64 {
        self.filled
    }
}

impl Default for Pass {
    fn default() -> Pass {
        Pass { blocks: FIRST, filled: 0 }
    }
}

/// Where the next batch begins: the number of the leaf, and a block of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillPosition {
    pub leaf: usize,
    pub block: i64,
}

impl FillPosition {
    pub fn parse(text: &str) -> FillPosition {
        let mut parts = text.split(' ');
        let leaf = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let block = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        FillPosition { leaf, block }
    }

    pub fn text(self) -> String {
        format!("{} {}", self.leaf, self.block)
    }
}

/// Fills the next blocks. Returns false if none is left.
pub fn step(
    session: &mut Connection,
    shape: &DerivedShape,
    names: &DerivedNames,
    leaves: &[String],
    place: &mut JobPlace,
    pass: &mut Pass,
) -> Result<bool> {
    let at = FillPosition::parse(&place.position);
    let Some(leaf) = leaves.get(at.leaf) else { return Ok(false) };
    let extent = blocks::of_leaf(session, leaf)?;
    let span = BlockSpan::next(at.block, pass.blocks, extent.blocks, false);
    let began = Instant::now();
    let batch = install::batch(shape, names, leaf, &span.condition("true"));
    let filled = session.run(&format!("BEGIN; SET LOCAL lock_timeout = '50ms'; {batch}"));
    // A partition may have got another name, or none any more.
    let filled = filled.map_err(|error| match error.is(UNDEFINED_TABLE) {
        true => SplitError::renamed(&error),
        false => error.into(),
    })?;
    let filled = filled.affected;
    session.run("COMMIT")?;
    pass.filled += i64::try_from(filled).unwrap_or(i64::MAX);
    pass.blocks = blocks::adapt(pass.blocks, LONG / began.elapsed().as_secs_f64().max(0.001), FEWEST, MOST);
    let passed = span.to.unwrap_or(extent.blocks);
    place.done += passed - at.block;
    let next = match span.to {
        Some(block) => FillPosition { block, ..at },
        None => FillPosition { leaf: at.leaf + 1, block: 0 },
    };
    place.position = next.text();
    Ok(next.leaf < leaves.len())
}

/// Returns how long to rest after a batch, so that the shard has as much time for others.
pub fn rest(took: Duration) -> Duration {
    took.min(Duration::from_millis(200))
}

#[cfg(test)]
mod tests {
    use super::FillPosition;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let position = FillPosition { leaf: 3, block: 1 << 33 };
        assert_eq!(FillPosition::parse(&position.text()), position);
        assert_eq!(FillPosition::parse(""), FillPosition::default());
    }
}
