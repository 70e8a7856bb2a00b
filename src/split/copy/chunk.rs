//! Chunks: spans of blocks of one leaf. A row is on one side of the cursor in a snapshot.

use super::scope_size;
use super::window::copy_rows;
use crate::agent::error::Result;
use crate::agent::state::progress::{Cursor, Progress};
use crate::guc;
use crate::remote::copy::Copied;
use crate::split::blocks::{self, Extent, Span};
use crate::split::engine::Engine;
use std::time::{Duration, Instant};

const MIN_BLOCKS: i64 = 1;
const MAX_BLOCKS: i64 = 1 << 20;

/// Copies the next chunk of the first leaf that has one; None when all are copied.
pub fn copy_next(engine: &mut Engine, progress: &mut Progress) -> Result<Option<Copied>> {
    let next = progress.tables.iter().enumerate().find_map(|(position, table)| {
        table.leaves.iter().enumerate().find_map(|(index, leaf)| match leaf.cursor {
            Cursor::Block(block) => Some((position, index, block)),
            Cursor::End => None,
        })
    });
    let Some((position, index, from)) = next else { return Ok(None) };
    let leaf_oid = progress.tables[position].leaves[index].oid.clone();
    // Read after S, it only chooses the chunk.
    let Extent { name: leaf_name, blocks: total, .. } = blocks::of_leaf(&mut engine.reader, &leaf_oid)?;
    let few = from == 0 && engine.chunk_blocks < total && has_few_rows(engine, position, &leaf_name)?;
    let span = Span::next(from, engine.chunk_blocks, total, few);
    let table = &engine.tables[position];
    let rows = engine.plan.scope.predicate(&table.source_by, "t");
    let out = format!(
        "COPY (SELECT {} FROM ONLY {leaf_name} t WHERE {}) TO STDOUT ({})",
        table.select_list(),
        span.condition(&rows),
        table.format()
    );
    let began = Instant::now();
    let copied = copy_rows(engine, position, out)?;
    if span.to.is_some() {
        progress.chunk_blocks = Some(engine.chunk_blocks);
        engine.chunk_blocks = adapt(engine.chunk_blocks, began.elapsed(), copied.bytes);
    }
    let state = &mut progress.tables[position];
    state.rows_copied += i64::try_from(copied.rows).unwrap_or(0);
    state.bytes += i64::try_from(copied.bytes).unwrap_or(0);
    state.chunks += 1;
    state.leaves[index].blocks = total;
    state.leaves[index].cursor = span.to.map_or(Cursor::End, Cursor::Block);
    Ok(Some(copied))
}

fn has_few_rows(engine: &mut Engine, position: usize, leaf: &str) -> Result<bool> {
    let column = &engine.tables[position].source_by;
    scope_size::is_small(&mut engine.reader, leaf, column, &engine.plan.scope)
}

/// The next chunk's size: the time of a step, or what the rate allows in it.
fn adapt(blocks: i64, took: Duration, bytes: u64) -> i64 {
    let wanted = guc::step_time().as_secs_f64();
    let by_rate =
        guc::max_copy_rate().map_or(f64::INFINITY, |rate| rate as f64 * wanted / (bytes as f64).max(1.0));
    blocks::adapt(blocks, blocks::by_time(took).min(by_rate), MIN_BLOCKS, MAX_BLOCKS)
}
