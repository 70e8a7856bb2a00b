//! The next slices of a table, compared at the same time by the step's sessions and by those of the streams that see
//! what it sees. A step without streams compares one slice.
//!
//! Invariant: the slices are noted in their order, each behind all that come before it; what lies behind one that is
//! not known to be compared is forgotten.

use crate::agent::blocks::{self, BlockSpan, Extent};
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Leaf;
use crate::catalog::split::Plan;
use crate::catalog::verification::{Verification, VerificationStatus};
use crate::split::engine::scope_size;
use crate::split::engine::session_pair::{SessionPair, ask_both};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::verification::{Run, When};
use crate::split::table::SplitTable;
use crate::split::verify::position::{ReadSide, VerifyPosition};
use crate::split::verify::ranges::{self, Range};
use crate::split::verify::row_slices::{self, Slice};
use crate::split::verify::rows::SliceResult;
use crate::split::verify::slice::{
    ComparedTable, LEAST_BLOCKS, MOST_BLOCKS, noted, pair_count, prepare, reach_compared, unless,
};
use crate::split::verify::whole::{self, SideSize};
use std::time::Instant;

/// Compares the next ranges of a table's key and returns the bytes of their rows. Returns None if the sessions do not
/// have the tables yet that this needs.
pub fn ranges(
    plan: &Plan,
    sessions: &mut EngineSessions,
    run: &mut Run,
    of: ComparedTable<'_>,
) -> Result<Option<i64>> {
    let began = Instant::now();
    let at = VerifyPosition { read: ReadSide::Ranges, ..VerifyPosition::parse(&of.record.position) };
    let is_first = run.keys == 0 || at.after.is_empty();
    let keys = if is_first { ranges::first_keys(&mut sessions.reader, of.table)? } else { run.keys };
    let planned = next_ranges(sessions, of.table, &at, keys)?;
    let sizes = sums(plan, sessions, of.table, &planned)?;
    let mut differ: Vec<usize> = (0..sizes.len()).filter(|lane| sizes[*lane].is_none()).collect();
    let mut compared: Vec<Option<SliceResult>> = sizes
        .into_iter()
        .map(|size| {
            size.map(|SideSize { rows, bytes }| SliceResult { rows, bytes, ..SliceResult::default() })
        })
        .collect();
    if !differ.is_empty() {
        let prepared = prepare(sessions, run, of)?;
        differ.retain(|lane| *lane < prepared);
    }
    if !differ.is_empty() {
        let rows = rows_of(plan, sessions, of, &planned, &differ)?;
        for (lane, rows) in differ.into_iter().zip(rows) {
            compared[lane] = Some(rows);
        }
    }
    reach_compared(&sessions.streams)?;
    let factor = blocks::by_time(began.elapsed()) / 4.0;
    run.keys = blocks::adapt(keys, factor, ranges::LEAST_KEYS, ranges::MOST_KEYS);
    let behind = planned
        .into_iter()
        .map(|range| range.to.map(|after| VerifyPosition { after, ..at.clone() }.to_text()));
    note(run, of.record, behind.zip(compared))
}

fn next_ranges(
    sessions: &mut EngineSessions,
    table: &SplitTable,
    at: &VerifyPosition,
    keys: i64,
) -> Result<Vec<Range>> {
    let (mut planned, mut from) = (Vec::new(), at.clone());
    while planned.len() < pair_count(&sessions.streams) {
        let range = Range::next(sessions, table, &from, keys)?;
        let to = range.to.clone();
        planned.push(range);
        let Some(after) = to else { break };
        from.after = after;
    }
    Ok(planned)
}

/// Returns for each range what was compared, if both sides are equal there.
fn sums(
    plan: &Plan,
    sessions: &mut EngineSessions,
    table: &SplitTable,
    planned: &[Range],
) -> Result<Vec<Option<SideSize>>> {
    let conditions: Vec<[String; 2]> = planned.iter().map(|range| range.conditions(plan, table)).collect();
    let message =
        |side, condition: &str| format!("{} {}", ranges::BY_INDEX, whole::question(table, side, condition));
    let messages: Vec<[String; 2]> = conditions
        .iter()
        .map(|[here, there]| [message(Side::Source, here), message(Side::Target, there)])
        .collect();
    let mut pairs: Vec<SessionPair<'_>> = sessions.pairs().take(planned.len()).collect();
    let mut sizes = Vec::new();
    for (answers, pair) in ask_both(&mut pairs, &messages)?.into_iter().zip(&pairs) {
        sizes.push(whole::read(table, pair, answers)?);
    }
    let as_before = vec![[ranges::AS_BEFORE; 2].map(str::to_owned); planned.len()];
    for answers in ask_both(&mut pairs, &as_before)? {
        answers.into_iter().try_for_each(|answer| answer.map(drop))?;
    }
    Ok(sizes)
}

/// Compares the rows of ranges that differ between both sides, each in its lane.
fn rows_of(
    plan: &Plan,
    sessions: &mut EngineSessions,
    of: ComparedTable<'_>,
    planned: &[Range],
    differ: &[usize],
) -> Result<Vec<SliceResult>> {
    let ComparedTable { table, when, .. } = of;
    let unless = unless(plan, &mut sessions.target, of)?;
    let conditions: Vec<(usize, [String; 2])> =
        differ.iter().map(|lane| (*lane, planned[*lane].conditions(plan, table))).collect();
    let slices = |side: usize, leaves: &[Leaf]| -> Vec<Vec<Slice>> {
        let of_leaf = |leaf: &Leaf| {
            let slice = |(lane, conditions): &(usize, [String; 2])| Slice {
                lane: *lane,
                leaf: leaf.name.clone(),
                condition: conditions[side].clone(),
            };
            conditions.iter().map(slice).collect()
        };
        leaves.iter().map(of_leaf).collect()
    };
    let here = slices(0, table.source.leaves());
    let there = slices(1, table.target.leaves());
    let mut all: Vec<SliceResult> = differ.iter().map(|_| SliceResult::default()).collect();
    let mut add =
        |compared: Vec<SliceResult>| all.iter_mut().zip(compared).for_each(|(all, more)| all.add(more));
    for slices in here {
        add(row_slices::of_source(plan, sessions, table, &slices, &unless)?);
    }
    if when == When::BeforeCutover {
        for slices in there {
            add(row_slices::of_target(plan, sessions, table, &slices)?);
        }
    }
    Ok(all)
}

/// Compares the next blocks of a table, of one side, with the same result. At the end of that side it turns to the
/// other one.
pub fn blocks(
    plan: &Plan,
    sessions: &mut EngineSessions,
    run: &mut Run,
    of: ComparedTable<'_>,
) -> Result<Option<i64>> {
    let began = Instant::now();
    let pairs = prepare(sessions, run, of)?;
    if pairs == 0 {
        return Ok(None);
    }
    let ComparedTable { record, .. } = of;
    let read = VerifyPosition::parse(&record.position).read;
    let spans = match next_spans(plan, sessions, run, of, pairs)? {
        NextSpans::Some(spans) => spans,
        NextSpans::Rewritten => {
            run.rewritten = Some(record.ordinal);
            return Ok(Some(0));
        }
        NextSpans::End(at) => {
            end_side(run, record, at, of.when);
            return Ok(Some(0));
        }
    };
    let is_any_whole = spans.iter().any(|span| span.is_whole);
    let (slices, behind): (Vec<Slice>, Vec<VerifyPosition>) =
        spans.into_iter().map(|span| (span.slice, span.behind)).unzip();
    let compared = match read {
        ReadSide::Target => row_slices::of_target(plan, sessions, of.table, &slices)?,
        ReadSide::Source | ReadSide::Ranges => {
            let unless = unless(plan, &mut sessions.target, of)?;
            row_slices::of_source(plan, sessions, of.table, &slices, &unless)?
        }
    };
    reach_compared(&sessions.streams)?;
    if is_any_whole {
        let factor = blocks::by_time(began.elapsed()) / 4.0;
        run.blocks = blocks::adapt(run.blocks, factor, LEAST_BLOCKS, MOST_BLOCKS);
    }
    let behind = behind.iter().map(|at| Some(at.to_text()));
    note(run, of.record, behind.zip(compared.into_iter().map(Some)))
}

/// Notes that a side of a table is compared, after which the other side is, or the table is done.
fn end_side(run: &mut Run, table: &Verification, mut at: VerifyPosition, when: When) {
    let is_done = when == When::AfterCutover || !at.turn();
    let status = match (is_done, table.differing) {
        (false, _) => VerificationStatus::Running,
        (true, 0) => VerificationStatus::Passed,
        (true, _) => VerificationStatus::Differs,
    };
    run.note(Verification { status, position: at.to_text(), ..table.clone() }, Vec::new());
}

/// A slice of blocks, and the position behind it.
struct PlannedSpan {
    slice: Slice,
    behind: VerifyPosition,
    /// It has as many blocks as were asked for: it does not end with its leaf.
    is_whole: bool,
}

/// The result of planning spans.
enum NextSpans {
    Some(Vec<PlannedSpan>),
    /// None is left on this side.
    End(VerifyPosition),
    /// The leaf's rows are in another file than those that were read.
    Rewritten,
}

/// Returns spans of blocks of the side that is being read, one for each pair.
fn next_spans(
    plan: &Plan,
    sessions: &mut EngineSessions,
    run: &Run,
    of: ComparedTable<'_>,
    pairs: usize,
) -> Result<NextSpans> {
    let mut spans = Vec::new();
    let EngineSessions { reader, target, .. } = sessions;
    let ComparedTable { record, table, when, .. } = of;
    let mut at = VerifyPosition::parse(&record.position);
    let (session, shape, by) = match at.read {
        // Rows that only the target has may have been inserted by its clients since.
        ReadSide::Target if when == When::AfterCutover => return Ok(NextSpans::End(at)),
        ReadSide::Target => (target, &table.target, &table.target_by),
        ReadSide::Source | ReadSide::Ranges => (reader, &table.source, &table.source_by),
    };
    let oids: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
    while spans.len() < pairs {
        let Some(oid) = at.next_leaf(&oids) else { break };
        let Some(leaf) = shape.leaves().iter().find(|leaf| leaf.oid == oid) else { break };
        let Extent { blocks: total, file, .. } = blocks::of_leaf(session, &oid)?;
        if !at.is_of(file) {
            if spans.is_empty() {
                return Ok(NextSpans::Rewritten);
            }
            break;
        }
        let few = at.block == 0 && scope_size::is_small(session, &leaf.name, by, &plan.scope)?;
        let span = BlockSpan::next(at.block, run.blocks, total, few);
        at.passed(span.to);
        let condition = span.condition(&plan.scope.predicate(by, "t"));
        let slice = Slice { lane: spans.len(), leaf: leaf.name.clone(), condition };
        spans.push(PlannedSpan { slice, behind: at.clone(), is_whole: span.to.is_some() });
    }
    Ok(if spans.is_empty() { NextSpans::End(at) } else { NextSpans::Some(spans) })
}

/// Notes what was compared, each with the position behind it (None for the table's end), as far as all of it is known,
/// and returns its bytes. Returns None if nothing is known.
fn note(
    run: &mut Run,
    table: &Verification,
    compared: impl Iterator<Item = (Option<String>, Option<SliceResult>)>,
) -> Result<Option<i64>> {
    let (mut bytes, mut is_any) = (0, false);
    for (behind, compared) in compared {
        let (Some(compared), Some(before)) = (compared, run.tables.first().cloned()) else { break };
        let differing = before.differing + compared.differing;
        let (status, position) = match behind {
            Some(position) => (VerificationStatus::Running, position),
            None if differing == 0 => (VerificationStatus::Passed, table.position.clone()),
            None => (VerificationStatus::Differs, table.position.clone()),
        };
        bytes += compared.bytes;
        let (next, found) = noted(before, compared, status, position);
        run.note(next, found);
        is_any = true;
    }
    Ok(is_any.then_some(bytes))
}
