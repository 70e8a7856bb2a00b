//! Chunks: spans of blocks of one leaf. A row is on one side of the cursor in a snapshot.

use super::by_keys::{self, ByKeys, Looked};
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

/// Leaves that are copied together, each of few blocks, and blocks of all of them.
const MOST_TOGETHER: usize = 32;
const SHORT_BLOCKS: i64 = 32;
const MOST_SHORT_BLOCKS: i64 = 256;

/// A leaf of which not all is copied.
struct Next {
    position: usize,
    index: usize,
    from: i64,
    oid: String,
}

/// Copies the next chunk of the first leaf that has one, and of the short leaves behind it all, if it is short
/// itself; of each what was copied. None when all are copied.
pub fn copy_next(engine: &mut Engine, progress: &mut Progress) -> Result<Option<Vec<Copied>>> {
    let next = next_leaves(progress);
    let oids: Vec<&str> = next.iter().map(|next| next.oid.as_str()).collect();
    // Read after S, they only choose the chunk.
    let extents = if oids.is_empty() { Vec::new() } else { blocks::of_leaves(&mut engine.reader, &oids)? };
    let Some((first, extent)) = next.first().zip(extents.first()) else { return Ok(None) };
    let short = short_ones(engine, &next, &extents);
    if short > 1 {
        return copy_short(engine, progress, next.iter().zip(&extents).take(short)).map(Some);
    }
    copy_span(engine, progress, first, extent).map(|copied| Some(vec![copied]))
}

fn next_leaves(progress: &Progress) -> Vec<Next> {
    let all = progress.tables.iter().enumerate().flat_map(|(position, table)| {
        table.leaves.iter().enumerate().filter_map(move |(index, leaf)| match leaf.cursor {
            Cursor::Block(from) => Some(Next { position, index, from, oid: leaf.oid.clone() }),
            Cursor::End => None,
        })
    });
    all.take(MOST_TOGETHER).collect()
}

/// How many of them, from the first on, are one chunk each of few blocks. Where the rate is limited each
/// chunk is looked at by itself.
fn short_ones(engine: &Engine, next: &[Next], extents: &[Extent]) -> usize {
    if guc::max_copy_rate().is_some() {
        return 0;
    }
    let mut sum = 0;
    let is_short = |(next, extent): &(&Next, &Extent)| {
        sum += extent.blocks;
        next.from == 0 && extent.blocks <= SHORT_BLOCKS.min(engine.chunk_blocks) && sum <= MOST_SHORT_BLOCKS
    };
    next.iter().zip(extents).take_while(is_short).count()
}

/// Leaves as a whole, of which each side is asked in one message.
fn copy_short<'a>(
    engine: &mut Engine,
    progress: &mut Progress,
    short: impl Iterator<Item = (&'a Next, &'a Extent)> + Clone,
) -> Result<Vec<Copied>> {
    let out = |(next, extent): (&Next, &Extent)| {
        let span = Span::next(0, extent.blocks.max(1), extent.blocks, true);
        let condition = span.condition(&predicate(engine, next.position));
        (next.position, out_of(engine, next.position, &extent.name, &condition))
    };
    let outs: Vec<(usize, String)> = short.clone().map(out).collect();
    let all = copy_rows(engine, outs)?;
    for ((next, extent), copied) in short.zip(&all) {
        note(progress, next, (extent.blocks, None), *copied);
    }
    Ok(all)
}

/// The next chunk of one leaf.
fn copy_span(engine: &mut Engine, progress: &mut Progress, next: &Next, extent: &Extent) -> Result<Copied> {
    let Extent { name: leaf_name, blocks: total, .. } = extent;
    let few =
        next.from == 0 && engine.chunk_blocks < *total && has_few_rows(engine, next.position, leaf_name)?;
    let began = Instant::now();
    let by_keys = ByKeys::of(engine, next.position).filter(|_| !few && *total > SHORT_BLOCKS);
    let (span, rows, keys) = match by_keys {
        Some(by_keys) => span_by_keys(engine, &by_keys, next, extent)?,
        None => {
            let span = Span::next(next.from, engine.chunk_blocks, *total, few);
            (span, Some(predicate(engine, next.position)), 0)
        }
    };
    let outs: Vec<(usize, String)> = rows
        .map(|rows| (next.position, out_of(engine, next.position, leaf_name, &span.condition(&rows))))
        .into_iter()
        .collect();
    let copied = copy_rows(engine, outs)?.into_iter().next().unwrap_or_default();
    if span.to.is_some() {
        progress.chunk_blocks = Some(engine.chunk_blocks);
        engine.chunk_blocks = adapt(engine.chunk_blocks, began.elapsed(), copied.bytes, keys);
    }
    note(progress, next, (*total, span.to), copied);
    Ok(copied)
}

/// The next span of which the keys can be taken, which is shortened until they can; the condition for its rows that
/// move, None being that there are none, and how many keys it has.
fn span_by_keys(
    engine: &mut Engine,
    by_keys: &ByKeys,
    next: &Next,
    extent: &Extent,
) -> Result<(Span, Option<String>, usize)> {
    loop {
        let span = Span::next(next.from, engine.chunk_blocks, extent.blocks, false);
        match by_keys.look(engine, next.position, &extent.name, span)? {
            Looked::Keys(keys, rows) => return Ok((span, rows, keys)),
            Looked::TooMany if engine.chunk_blocks > MIN_BLOCKS => {
                let blocks = engine.chunk_blocks.min(extent.blocks - next.from);
                engine.chunk_blocks = (blocks / 2).max(MIN_BLOCKS);
            }
            Looked::TooMany => return Ok((span, Some(predicate(engine, next.position)), 0)),
        }
    }
}

fn predicate(engine: &Engine, position: usize) -> String {
    engine.plan.scope.predicate(&engine.tables[position].source_by, "t")
}

fn out_of(engine: &Engine, position: usize, leaf: &str, condition: &str) -> String {
    let table = &engine.tables[position];
    format!(
        "COPY (SELECT {} FROM ONLY {leaf} t WHERE {condition}) TO STDOUT ({})",
        table.select_list(),
        table.format()
    )
}

/// A chunk of a leaf of so many blocks is copied, up to a block; None: to its end.
fn note(progress: &mut Progress, next: &Next, (total, to): (i64, Option<i64>), copied: Copied) {
    let state = &mut progress.tables[next.position];
    state.rows_copied += i64::try_from(copied.rows).unwrap_or(0);
    state.bytes += i64::try_from(copied.bytes).unwrap_or(0);
    state.chunks += 1;
    state.leaves[next.index].blocks = total;
    state.leaves[next.index].cursor = to.map_or(Cursor::End, Cursor::Block);
}

fn has_few_rows(engine: &mut Engine, position: usize, leaf: &str) -> Result<bool> {
    let column = &engine.tables[position].source_by;
    scope_size::is_small(&mut engine.reader, leaf, column, &engine.plan.scope)
}

/// The next chunk's size: the time of a step, or what the rate allows in it, or as many keys as are taken at once.
fn adapt(blocks: i64, took: Duration, bytes: u64, keys: usize) -> i64 {
    let wanted = guc::step_time().as_secs_f64();
    let by_rate =
        guc::max_copy_rate().map_or(f64::INFINITY, |rate| rate as f64 * wanted / (bytes as f64).max(1.0));
    let factor = blocks::by_time(took).min(by_rate).min(by_keys::factor(keys));
    blocks::adapt(blocks, factor, MIN_BLOCKS, MAX_BLOCKS)
}
