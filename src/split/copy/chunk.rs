//! Chunks: ranges of blocks of one leaf. In one snapshot a row has one ctid, so it
//! is on one side of the cursor, and a chunk costs its own blocks only.

use super::scope_size;
use super::window::copy_rows;
use crate::agent::error::Result;
use crate::agent::state::progress::{Cursor, Progress};
use crate::guc;
use crate::remote::copy::{Bounds, Copied};
use crate::remote::number;
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
    // Read after S, it only chooses the chunk: the last one has no upper bound, so
    // no row can lie behind it.
    let blocks = engine.reader.run(&format!(
        "SELECT pg_relation_size({leaf_oid}::oid) / current_setting('block_size')::bigint,
                {leaf_oid}::regclass::text"
    ))?;
    let total = number::blocks(engine.reader.shard(), blocks.scalar())?;
    let leaf_name = blocks.rows.first().and_then(|r| r.get(1).cloned().flatten()).unwrap_or_default();
    let to = from + engine.chunk_blocks;
    let is_last = to >= total || from == 0 && has_few_rows(engine, position, &leaf_name)?;
    let upper = if is_last { String::new() } else { format!("AND t.ctid < '({to},0)'::tid") };
    let table = &engine.tables[position];
    // Without a bound the planner is free to take an index.
    let lower = if from == 0 { String::new() } else { format!("t.ctid >= '({from},0)'::tid AND") };
    let out = format!(
        "COPY (SELECT {} FROM ONLY {leaf_name} t WHERE {lower} {} {upper}) TO STDOUT ({})",
        table.select_list(),
        engine.plan.scope.predicate(&table.source_by, "t"),
        table.format()
    );
    let began = Instant::now();
    let copied = copy_rows(engine, position, &out, Bounds::unlimited())?;
    if !is_last {
        progress.chunk_blocks = Some(engine.chunk_blocks);
        engine.chunk_blocks = adapt(engine.chunk_blocks, began.elapsed(), copied.bytes);
    }
    let state = &mut progress.tables[position];
    state.rows_copied += i64::try_from(copied.rows).unwrap_or(0);
    state.bytes += i64::try_from(copied.bytes).unwrap_or(0);
    state.chunks += 1;
    state.leaves[index].blocks = total;
    state.leaves[index].cursor = if is_last { Cursor::End } else { Cursor::Block(to) };
    Ok(Some(copied))
}

fn has_few_rows(engine: &mut Engine, position: usize, leaf: &str) -> Result<bool> {
    let column = &engine.tables[position].source_by;
    scope_size::is_small(&mut engine.reader, leaf, column, &engine.plan.scope)
}

/// The next chunk's size: the time of a step, or what the rate allows in it.
fn adapt(blocks: i64, took: Duration, bytes: u64) -> i64 {
    let wanted = guc::step_time().as_secs_f64();
    let by_time = wanted / took.as_secs_f64().max(0.001);
    let by_rate =
        guc::max_copy_rate().map_or(f64::INFINITY, |rate| rate as f64 * wanted / (bytes as f64).max(1.0));
    // Doubling at most: one lucky chunk does not make the next one long.
    let factor = by_time.min(by_rate).clamp(0.1, 2.0);
    ((blocks as f64 * factor) as i64).clamp(MIN_BLOCKS, MAX_BLOCKS)
}
