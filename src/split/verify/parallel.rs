//! Slices that are compared at the same time, by the step's sessions and by those of the streams that see what it
//! sees.
//!
//! Invariant: as of slices one behind the other. They are the ones that would come next, and they are noted in that
//! order, each behind all that come before it; what lies behind one that is not known to be compared is forgotten.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Leaf;
use crate::agent::state::progress::CopyProgress;
use crate::catalog::verification::{Verification, VerificationStatus};
use crate::remote::result::Rows;
use crate::remote::{Connection, FOR_EVER, RemoteError};
use crate::server::wait::{self, WorkerStatus};
use crate::split::blocks::{self, BlockSpan, Extent};
use crate::split::engine::verification::{Run, When};
use crate::split::engine::{Engine, scope_size};
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use crate::split::verify::position::{ReadSide, VerifyPosition};
use crate::split::verify::ranges::{self, Range};
use crate::split::verify::rows::SliceResult;
use crate::split::verify::rows_parallel::{self, Slice, pairs};
use crate::split::verify::slice::{
    LEAST_BLOCKS, MOST_BLOCKS, noted, position_of, prepare, prepare_streams, unless,
};
use crate::split::verify::whole::{self, SideSize};
use std::time::Instant;

/// The greatest number of tables that one pair of sessions is asked about in one message.
const MOST_TOGETHER: usize = 32;
/// The cost of asking about one table, expressed in bytes of it.
const TO_ASK: i64 = 64 << 10;

/// Returns the number of pairs.
fn lanes(engine: &Engine) -> usize {
    engine.streams.held + 1
}

/// Compares the small tables that come first, some of them in each lane. Returns false if there are none for more than
/// one lane, or the first one differs between both sides.
pub fn small_ones(engine: &mut Engine, run: &mut Run) -> Result<bool> {
    let lanes = lanes(engine);
    if lanes < 2 {
        return Ok(false);
    }
    let pending = run.tables.iter().take_while(|table| table.status == VerificationStatus::Pending);
    let next = pending.map_while(|table| position_of(engine, table.ordinal));
    let positions: Vec<usize> = next.take(MOST_TOGETHER.saturating_mul(lanes)).collect();
    if positions.len() < 2 {
        return Ok(false);
    }
    let groups = groups(&whole::sizes(engine, &positions)?, lanes, whole::most());
    if groups.len() < 2 {
        return Ok(false);
    }
    wait::report_as(WorkerStatus::Working, &format!("comparing {}", engine.tables[positions[0]].source.name));
    let mut left = positions.as_slice();
    let mut of_each = Vec::new();
    for count in groups {
        let (these, behind) = left.split_at(count.min(left.len()));
        of_each.push(these);
        left = behind;
    }
    let Engine { plan, reader, target, streams, tables, .. } = &mut *engine;
    let mut pairs = pairs((reader, target), &mut streams.open, |lane| lane < of_each.len());
    let message = |positions: &[usize]| {
        [Side::Source, Side::Target].map(|side| whole::together(&plan.scope, tables, positions, side))
    };
    let messages: Vec<[String; 2]> = of_each.iter().map(|positions| message(positions)).collect();
    let answers = ask(&mut pairs, &messages)?;
    let mut compared = Vec::new();
    for (((reader, target), positions), answers) in pairs.into_iter().zip(&of_each).zip(answers) {
        compared.extend(whole::read_together((reader, target), positions.len(), answers)?);
    }
    reach(injection_points::STREAMS_COMPARED)?;
    let mut is_any = false;
    for size in compared.into_iter().map_while(|size| size) {
        let Some(table) = run.tables.first().cloned() else { break };
        let all =
            Verification { rows: size.rows, bytes: size.bytes, status: VerificationStatus::Passed, ..table };
        run.note(all, Vec::new());
        is_any = true;
    }
    Ok(is_any)
}

/// Returns how many of the first tables each lane gets, of these sizes, so that all have about as much to do.
fn groups(sizes: &[i64], lanes: usize, most: i64) -> Vec<usize> {
    let limit = most.saturating_mul(i64::try_from(lanes).unwrap_or(1));
    let mut sum = 0_i64;
    let fits = |size: &&i64| {
        sum = sum.saturating_add(**size);
        **size <= most && sum <= limit
    };
    let weights: Vec<i64> = sizes.iter().take_while(fits).map(|size| size.saturating_add(TO_ASK)).collect();
    let share = weights.iter().sum::<i64>() / i64::try_from(lanes).unwrap_or(1);
    let (mut groups, mut weight) = (Vec::<usize>::new(), 0_i64);
    for next in weights {
        let is_full = groups.len() == lanes;
        match groups.last_mut() {
            Some(count) if weight < share && *count < MOST_TOGETHER => *count += 1,
            Some(_) if is_full => break,
            Some(_) | None => {
                groups.push(1);
                weight = 0;
            }
        }
        weight += next;
    }
    groups
}

/// Compares the next ranges of a table's key and returns the bytes of their rows. Returns None if they are compared
/// one by one.
pub fn ranges(
    engine: &mut Engine,
    run: &mut Run,
    (table, position): (&Verification, usize),
    (when, progress): (When, &CopyProgress),
) -> Result<Option<i64>> {
    if lanes(engine) < 2 {
        return Ok(None);
    }
    let began = Instant::now();
    let at = VerifyPosition { read: ReadSide::Ranges, ..VerifyPosition::parse(&table.position) };
    let is_first = run.keys == 0 || at.after.is_empty();
    let keys = if is_first { ranges::first_keys(engine, position)? } else { run.keys };
    let planned = next_ranges(engine, position, &at, keys)?;
    if planned.len() < 2 {
        return Ok(None);
    }
    let sizes = sums(engine, position, &planned)?;
    let differ: Vec<usize> = (0..sizes.len()).filter(|lane| sizes[*lane].is_none()).collect();
    let mut compared: Vec<Option<SliceResult>> = sizes
        .into_iter()
        .map(|size| {
            size.map(|SideSize { rows, bytes }| SliceResult { rows, bytes, ..SliceResult::default() })
        })
        .collect();
    if !differ.is_empty() && are_prepared(engine, run, (table, position), when)? {
        let unless = unless(engine, progress, position, when)?;
        let rows = rows_of(engine, position, (&planned, &differ), (when, &unless))?;
        for (lane, rows) in differ.into_iter().zip(rows) {
            compared[lane] = Some(rows);
        }
    }
    reach(injection_points::STREAMS_COMPARED)?;
    let factor = blocks::by_time(began.elapsed()) / 4.0;
    run.keys = blocks::adapt(keys, factor, ranges::LEAST_KEYS, ranges::MOST_KEYS);
    let behind = planned
        .into_iter()
        .map(|range| range.to.map(|after| VerifyPosition { after, ..at.clone() }.to_text()));
    note(run, table, behind.zip(compared))
}

fn next_ranges(engine: &mut Engine, position: usize, at: &VerifyPosition, keys: i64) -> Result<Vec<Range>> {
    let (mut planned, mut from) = (Vec::new(), at.clone());
    while planned.len() < lanes(engine) {
        let range = Range::next(engine, position, &from, keys)?;
        let to = range.to.clone();
        planned.push(range);
        let Some(after) = to else { break };
        from.after = after;
    }
    Ok(planned)
}

/// Returns for each range what was compared, if both sides are equal there.
fn sums(engine: &mut Engine, position: usize, planned: &[Range]) -> Result<Vec<Option<SideSize>>> {
    let conditions: Vec<[String; 2]> =
        planned.iter().map(|range| range.conditions(engine, position)).collect();
    let Engine { reader, target, streams, tables, .. } = engine;
    let table: &SplitTable = &tables[position];
    let message =
        |side, condition: &str| format!("{} {}", ranges::BY_INDEX, whole::question(table, side, condition));
    let messages: Vec<[String; 2]> = conditions
        .iter()
        .map(|[here, there]| [message(Side::Source, here), message(Side::Target, there)])
        .collect();
    let mut pairs = pairs((reader, target), &mut streams.open, |lane| lane < planned.len());
    let mut sizes = Vec::new();
    for ((reader, target), answers) in
        ask(&mut pairs, &messages)?.into_iter().zip(&pairs).map(|(a, p)| (p, a))
    {
        sizes.push(whole::read(table, (reader, target), answers)?);
    }
    let as_before = vec![[ranges::AS_BEFORE; 2].map(str::to_owned); planned.len()];
    for answers in ask(&mut pairs, &as_before)? {
        answers.into_iter().try_for_each(|answer| answer.map(drop))?;
    }
    Ok(sizes)
}

/// Compares the rows of ranges that differ between both sides, each in its lane.
fn rows_of(
    engine: &mut Engine,
    position: usize,
    (planned, differ): (&[Range], &[usize]),
    (when, unless): (When, &str),
) -> Result<Vec<SliceResult>> {
    let conditions: Vec<(usize, [String; 2])> =
        differ.iter().map(|lane| (*lane, planned[*lane].conditions(engine, position))).collect();
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
    let here = slices(0, engine.tables[position].source.leaves());
    let there = slices(1, engine.tables[position].target.leaves());
    let mut all: Vec<SliceResult> = differ.iter().map(|_| SliceResult::default()).collect();
    let mut add =
        |compared: Vec<SliceResult>| all.iter_mut().zip(compared).for_each(|(all, more)| all.add(more));
    for slices in here {
        add(rows_parallel::of_source(engine, position, &slices, unless)?);
    }
    if when == When::BeforeCutover {
        for slices in there {
            add(rows_parallel::of_target(engine, position, &slices)?);
        }
    }
    Ok(all)
}

/// Compares the next blocks of a table, of one side, and returns the bytes of their rows. Returns None if they are
/// compared one by one.
pub fn blocks(
    engine: &mut Engine,
    run: &mut Run,
    (table, position): (&Verification, usize),
    (when, progress): (When, &CopyProgress),
) -> Result<Option<i64>> {
    if lanes(engine) < 2 {
        return Ok(None);
    }
    let began = Instant::now();
    let at = VerifyPosition::parse(&table.position);
    let spans = next_spans(engine, run, position, (at.clone(), when))?;
    if spans.len() < 2 || !are_prepared(engine, run, (table, position), when)? {
        return Ok(None);
    }
    let (slices, behind): (Vec<Slice>, Vec<VerifyPosition>) = spans.into_iter().unzip();
    let compared = match at.read {
        ReadSide::Target => rows_parallel::of_target(engine, position, &slices)?,
        ReadSide::Source | ReadSide::Ranges => {
            let unless = unless(engine, progress, position, when)?;
            rows_parallel::of_source(engine, position, &slices, &unless)?
        }
    };
    reach(injection_points::STREAMS_COMPARED)?;
    let factor = blocks::by_time(began.elapsed()) / 4.0;
    run.blocks = blocks::adapt(run.blocks, factor, LEAST_BLOCKS, MOST_BLOCKS);
    let behind = behind.iter().map(|at| Some(at.to_text()));
    note(run, table, behind.zip(compared.into_iter().map(Some)))
}

/// Returns spans of blocks of the side that is being read, each with the position behind it.
fn next_spans(
    engine: &mut Engine,
    run: &Run,
    position: usize,
    (mut at, when): (VerifyPosition, When),
) -> Result<Vec<(Slice, VerifyPosition)>> {
    let mut spans = Vec::new();
    let most = lanes(engine);
    let Engine { plan, reader, target, tables, .. } = engine;
    let table = &tables[position];
    let (session, shape, by) = match at.read {
        // Rows that only the target has may have been inserted by its clients since.
        ReadSide::Target if when == When::AfterCutover => return Ok(spans),
        ReadSide::Target => (target, &table.target, &table.target_by),
        ReadSide::Source | ReadSide::Ranges => (reader, &table.source, &table.source_by),
    };
    let oids: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
    while spans.len() < most {
        let Some(oid) = at.next_leaf(&oids) else { break };
        let Some(leaf) = shape.leaves().iter().find(|leaf| leaf.oid == oid) else { break };
        let Extent { blocks: total, file, .. } = blocks::of_leaf(session, &oid)?;
        if !at.is_of(file) {
            break;
        }
        let few = at.block == 0 && scope_size::is_small(session, &leaf.name, by, &plan.scope)?;
        let span = BlockSpan::next(at.block, run.blocks, total, few);
        at.passed(span.to);
        let condition = span.condition(&plan.scope.predicate(by, "t"));
        spans.push((Slice { lane: spans.len(), leaf: leaf.name.clone(), condition }, at.clone()));
    }
    Ok(spans)
}

/// Prepares all lanes for a comparison of a table's rows. Returns whether they have what it needs.
fn are_prepared(engine: &mut Engine, run: &mut Run, of: (&Verification, usize), when: When) -> Result<bool> {
    let held = engine.streams.held;
    Ok(prepare(engine, run, of, when)? && prepare_streams(engine, held, of, when)?)
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

type RangeAnswers = [std::result::Result<Rows, RemoteError>; 2];

/// Asks both sessions of each pair, all at the same time.
fn ask(
    pairs: &mut [(&mut Connection, &mut Connection)],
    messages: &[[String; 2]],
) -> Result<Vec<RangeAnswers>> {
    for ((reader, target), [here, there]) in pairs.iter_mut().zip(messages) {
        reader.send(here)?;
        target.send(there)?;
    }
    let mut sessions: Vec<&mut Connection> =
        pairs.iter_mut().flat_map(|(reader, target)| [&mut **reader, &mut **target]).collect();
    let mut answers = Connection::finish_all(&mut sessions, FOR_EVER).into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Ok(Rows::default()));
    Ok(messages.iter().map(|_| [next(), next()]).collect())
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn small_tables_are_shared_out_in_their_order() {
        assert_eq!(groups(&[10; 6], 3, 1000), [2, 2, 2]);
        assert_eq!(groups(&[10; 7], 3, 1000), [3, 3, 1]);
        // The first table is as big as all others.
        assert_eq!(groups(&[10 << 20, 1, 1, 1], 2, 16 << 20), [1, 3]);
        // A table that does not fit is left out, with all behind it.
        assert_eq!(groups(&[1, 1, 17 << 20, 1], 2, 16 << 20), [1, 1]);
        assert_eq!(groups(&[17 << 20, 1], 2, 16 << 20), Vec::<usize>::new());
        assert_eq!(groups(&[0; 100], 2, 16 << 20), [32, 32]);
    }
}
