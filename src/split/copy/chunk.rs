//! Chunks: spans of blocks of one leaf. In a snapshot each row is on one side of the cursor.

use super::by_keys::{self, ByKeys, LookedSpan};
use super::{collision, window};
use crate::agent::blocks::{self, BlockSpan, Extent};
use crate::agent::error::Result;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::{CopyProgress, Cursor};
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::Connection;
use crate::remote::copy::Copied;
use crate::remote::pipe::{self, FailedPiece, Lane};
use crate::split::engine::{CopyPace, Engine, scope_size};
use crate::split::table::SplitTable;
use std::time::{Duration, Instant};

const MIN_BLOCKS: i64 = 1;
const MAX_BLOCKS: i64 = 1 << 20;

/// The greatest number of leaves that are copied together, of blocks of each, and of blocks of all of them.
const MOST_TOGETHER: usize = 32;
const SHORT_BLOCKS: i64 = 32;
const MOST_SHORT_BLOCKS: i64 = 256;
/// The greatest number of bytes of all of them, including values that are stored out of line.
const MOST_SHORT_BYTES: i64 = 32 << 20;

/// A leaf that is not completely copied.
#[derive(Clone)]
struct NextLeaf {
    position: usize,
    index: usize,
    from: i64,
    oid: String,
}

/// What is read from the source in one message.
pub struct Chunk {
    parts: Vec<ChunkPart>,
    /// The number of keys that were asked for by name.
    keys: usize,
    is_whole: bool,
}

/// A span of a leaf.
struct ChunkPart {
    next: NextLeaf,
    /// The number of blocks of the leaf, and the end of the span. `to` is `None` if the span reaches the leaf's end.
    blocks: i64,
    to: Option<i64>,
    /// The query of its rows. `None` if none of them moves.
    out: Option<String>,
}

impl Chunk {
    /// Returns the queries of its rows, with the positions of their tables.
    pub fn outs(&self) -> Vec<(usize, String)> {
        let out = |part: &ChunkPart| Some((part.next.position, part.out.clone()?));
        self.parts.iter().filter_map(out).collect()
    }

    /// Returns the positions of its tables, each once.
    pub fn tables(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = self.parts.iter().map(|part| part.next.position).collect();
        positions.dedup();
        positions
    }

    /// Whether it is a span with another one behind it: its size is the requested one.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Advances the cursors after the chunk was copied, and returns what was copied of each leaf; `copied` has one
    /// item for each query.
    pub fn note(&self, progress: &mut CopyProgress, copied: &[Copied]) -> Vec<Copied> {
        let mut copied = copied.iter();
        let mut all = Vec::new();
        for part in &self.parts {
            let of_part = part.out.as_ref().and_then(|_| copied.next()).copied().unwrap_or_default();
            let state = &mut progress.tables[part.next.position];
            state.rows_copied += i64::try_from(of_part.rows).unwrap_or(0);
            state.bytes += i64::try_from(of_part.bytes).unwrap_or(0);
            state.chunks += 1;
            let leaf = &mut state.leaves[part.next.index];
            leaf.blocks = part.blocks;
            leaf.cursor = part.to.map_or(Cursor::End, Cursor::Block);
            all.push(of_part);
        }
        all
    }

    /// Adapts the size of the next chunks to the time that this one took.
    pub fn adapt(&self, pace: &mut CopyPace, progress: &mut CopyProgress, took: Duration, copied: &[Copied]) {
        if self.is_whole {
            let bytes = copied.iter().map(|copied| copied.bytes).sum();
            progress.chunk_blocks = Some(pace.chunk_blocks);
            pace.chunk_blocks = adapt(pace.chunk_blocks, took, bytes, self.keys);
        }
    }
}

/// Copies the next chunk of the first leaf that has one, and, if that is short, of the short leaves behind it. Returns
/// what was copied of each, or None if all are copied.
pub fn copy_next(engine: &mut Engine, progress: &mut CopyProgress) -> Result<Option<Vec<Copied>>> {
    let began = Instant::now();
    let Some(chunk) = plan(engine, progress, 1)?.chunks.pop() else { return Ok(None) };
    let copied = copy(engine, std::slice::from_ref(&chunk))?.pop().unwrap_or_default();
    chunk.adapt(&mut engine.pace, progress, began.elapsed(), &copied);
    Ok(Some(chunk.note(progress, &copied)))
}

/// Copies chunks at the same time: the first by the step's own sessions, each other one by a stream. Returns what each
/// query of each chunk has copied.
pub fn copy(engine: &mut Engine, chunks: &[Chunk]) -> Result<Vec<Vec<Copied>>> {
    let of: Vec<Vec<(usize, String)>> = chunks.iter().map(Chunk::outs).collect();
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, mode, .. } = engine;
    let lanes = sessions.pairs().zip(&of).map(|(pair, outs)| {
        let pieces =
            outs.iter().map(|(position, out)| window::piece_of(plan, &tables[*position], out.clone()));
        Lane { source: pair.source, target: pair.target, pieces: pieces.collect() }
    });
    pipe::parallel(lanes.collect()).map_err(|FailedPiece { lane, piece, error }| {
        match of.get(lane).and_then(|outs| outs.get(piece)) {
            Some((position, _)) => collision::explain_of(plan, &tables[*position], *mode, error),
            None => error.into(),
        }
    })
}

/// The chunks that are next.
pub struct Planned {
    pub chunks: Vec<Chunk>,
    /// Whether something is behind them.
    pub has_rest: bool,
}

/// Returns the next chunks behind the cursors, at most `most`. Those of one leaf follow each other.
pub fn plan(engine: &mut Engine, progress: &CopyProgress, most: usize) -> Result<Planned> {
    let (mut next, has_others) = next_leaves(progress, MOST_TOGETHER.saturating_mul(most));
    let oids: Vec<&str> = next.iter().map(|next| next.oid.as_str()).collect();
    // The extents are read after S; they only choose the chunks.
    let extents =
        if oids.is_empty() { Vec::new() } else { blocks::of_leaves(&mut engine.sessions.reader, &oids)? };
    let (mut chunks, mut at) = (Vec::new(), 0);
    while let (true, Some(first), Some(extent)) = (chunks.len() < most, next.get(at), extents.get(at)) {
        let short = short_ones(engine.pace.chunk_blocks, &next[at..], &extents[at..]);
        if short > 1 {
            chunks.push(of_short(
                &engine.tenure.plan,
                &engine.tables,
                next[at..].iter().zip(&extents[at..]).take(short),
            ));
            at += short;
            continue;
        }
        let chunk = of_span(engine, &first.clone(), extent)?;
        match chunk.parts.first().and_then(|part| part.to) {
            Some(to) => next[at].from = to,
            None => at += 1,
        }
        chunks.push(chunk);
    }
    Ok(Planned { chunks, has_rest: has_others || at < next.len() })
}

/// Returns the number of chunks of this many blocks, as far as the blocks are known.
pub fn left(progress: &CopyProgress, blocks: i64) -> usize {
    let (mut short, mut spans) = (0_usize, 0_i64);
    for leaf in progress.tables.iter().flat_map(|table| &table.leaves) {
        match leaf.cursor {
            Cursor::Block(_) if leaf.blocks <= SHORT_BLOCKS => short += 1,
            Cursor::Block(from) => {
                let (rest, each) = (leaf.blocks.saturating_sub(from).max(1), blocks.max(1));
                spans += rest / each + i64::from(rest % each > 0);
            }
            Cursor::End => {}
        }
    }
    short.div_ceil(MOST_TOGETHER).saturating_add(usize::try_from(spans).unwrap_or(usize::MAX))
}

/// Returns leaves that are not copied to their end, and whether there are more.
fn next_leaves(progress: &CopyProgress, most: usize) -> (Vec<NextLeaf>, bool) {
    let mut all = progress.tables.iter().enumerate().flat_map(|(position, table)| {
        table.leaves.iter().enumerate().filter_map(move |(index, leaf)| match leaf.cursor {
            Cursor::Block(from) => Some(NextLeaf { position, index, from, oid: leaf.oid.clone() }),
            Cursor::End => None,
        })
    });
    let next = all.by_ref().take(most).collect();
    (next, all.next().is_some())
}

/// Returns how many of them, from the first on, are one chunk each of few blocks. If the rate is limited, each chunk
/// is measured alone.
fn short_ones(blocks: i64, next: &[NextLeaf], extents: &[Extent]) -> usize {
    if guc::max_copy_rate().is_some() {
        return 0;
    }
    let (mut sum, mut bytes) = (0, 0);
    let is_short = |(next, extent): &(&NextLeaf, &Extent)| {
        sum += extent.blocks;
        bytes += extent.bytes;
        let is_little = sum <= MOST_SHORT_BLOCKS && bytes <= MOST_SHORT_BYTES;
        next.from == 0 && extent.blocks <= SHORT_BLOCKS.min(blocks) && is_little
    };
    next.iter().zip(extents).take(MOST_TOGETHER).take_while(is_short).count()
}

/// Returns a chunk of complete leaves, for which each side is asked in one message.
fn of_short<'a>(
    plan: &Plan,
    tables: &[SplitTable],
    short: impl Iterator<Item = (&'a NextLeaf, &'a Extent)>,
) -> Chunk {
    let part = |(next, extent): (&NextLeaf, &Extent)| {
        let span = BlockSpan::next(0, extent.blocks.max(1), extent.blocks, true);
        let rows = predicate(plan, &tables[next.position]);
        part_of(&tables[next.position], next, extent, span, Some(rows))
    };
    Chunk { parts: short.map(part).collect(), keys: 0, is_whole: false }
}

/// Returns the next span of one leaf.
fn of_span(engine: &mut Engine, next: &NextLeaf, extent: &Extent) -> Result<Chunk> {
    let Extent { name, blocks: total, .. } = extent;
    engine.pace.chunk_blocks = engine.pace.chunk_blocks.min(extent.most_blocks());
    let few = next.from == 0
        && engine.pace.chunk_blocks < *total
        && has_few_rows(
            &engine.tenure.plan,
            &mut engine.sessions.reader,
            &engine.tables[next.position],
            name,
        )?;
    let by_keys = ByKeys::of(&engine.tenure.plan, &engine.sessions, &engine.tables[next.position])
        .filter(|_| !few && *total > SHORT_BLOCKS);
    let ChunkSpan { span, rows, keys } = match by_keys {
        Some(by_keys) => span_by_keys(engine, &by_keys, next, extent)?,
        None => {
            let span = BlockSpan::next(next.from, engine.pace.chunk_blocks, *total, few);
            ChunkSpan {
                span,
                rows: Some(predicate(&engine.tenure.plan, &engine.tables[next.position])),
                keys: 0,
            }
        }
    };
    let part = part_of(&engine.tables[next.position], next, extent, span, rows);
    Ok(Chunk { is_whole: span.to.is_some(), parts: vec![part], keys })
}

struct ChunkSpan {
    span: BlockSpan,
    /// The condition for its moving rows. None if there are none.
    rows: Option<String>,
    /// The number of its keys, if they were read.
    keys: usize,
}

/// Returns the next span whose keys can be read at once, after shortening it as needed.
fn span_by_keys(
    engine: &mut Engine,
    by_keys: &ByKeys,
    next: &NextLeaf,
    extent: &Extent,
) -> Result<ChunkSpan> {
    loop {
        let span = BlockSpan::next(next.from, engine.pace.chunk_blocks, extent.blocks, false);
        match by_keys.look(engine, next.position, &extent.name, span)? {
            LookedSpan::Keys(keys, rows) => return Ok(ChunkSpan { span, rows, keys }),
            LookedSpan::TooMany if engine.pace.chunk_blocks > MIN_BLOCKS => {
                let blocks = engine.pace.chunk_blocks.min(extent.blocks - next.from);
                engine.pace.chunk_blocks = (blocks / 2).max(MIN_BLOCKS);
            }
            LookedSpan::TooMany => {
                return Ok(ChunkSpan {
                    span,
                    rows: Some(predicate(&engine.tenure.plan, &engine.tables[next.position])),
                    keys: 0,
                });
            }
        }
    }
}

fn predicate(plan: &Plan, table: &SplitTable) -> String {
    plan.scope.predicate(&table.source_by, "t")
}

fn part_of(
    table: &SplitTable,
    next: &NextLeaf,
    extent: &Extent,
    span: BlockSpan,
    rows: Option<String>,
) -> ChunkPart {
    let out = |rows: String| {
        format!(
            "COPY (SELECT {} FROM ONLY {} t WHERE {}) TO STDOUT ({})",
            table.select_list(),
            extent.name,
            span.condition(&rows),
            table.format()
        )
    };
    ChunkPart { next: next.clone(), blocks: extent.blocks, to: span.to, out: rows.map(out) }
}

fn has_few_rows(plan: &Plan, reader: &mut Connection, table: &SplitTable, leaf: &str) -> Result<bool> {
    let column = &table.source_by;
    scope_size::is_small(reader, leaf, column, &plan.scope)
}

/// Returns the next chunk's size: the time of a step, or what the rate permits in it, or as many keys as are read at
/// once.
fn adapt(blocks: i64, took: Duration, bytes: u64, keys: usize) -> i64 {
    let wanted = guc::step_time().as_secs_f64();
    let by_rate =
        guc::max_copy_rate().map_or(f64::INFINITY, |rate| rate as f64 * wanted / (bytes as f64).max(1.0));
    let factor = blocks::by_time(took).min(by_rate).min(by_keys::factor(keys));
    blocks::adapt(blocks, factor, MIN_BLOCKS, MAX_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state::progress::{LeafProgress, TableProgress};

    #[test]
    fn chunks_that_are_left_are_counted() {
        let leaf = |cursor, blocks| LeafProgress {
            oid: String::new(),
            filenode: String::new(),
            triggers: String::new(),
            cursor,
            blocks,
        };
        let counted = |leaves: Vec<LeafProgress>| {
            let table = TableProgress { leaves, ..TableProgress::default() };
            left(&CopyProgress { tables: vec![table], ..CopyProgress::default() }, 100)
        };
        assert_eq!(counted(vec![leaf(Cursor::End, 1000)]), 0);
        assert_eq!(counted(vec![leaf(Cursor::Block(0), 1000), leaf(Cursor::Block(950), 1000)]), 11);
        // The leaf has become smaller meanwhile.
        assert_eq!(counted(vec![leaf(Cursor::Block(950), 900)]), 1);
        assert_eq!(counted((0..33).map(|_| leaf(Cursor::Block(0), 3)).collect()), 2);
    }
}
