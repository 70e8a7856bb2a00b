//! The comparison of a split's tables, one slice at a time.
//!
//! Invariant: what a table's position has passed was equal, or is counted and reported, at a snapshot of the source at
//! which the target stood. So a worker that starts again continues there; a table whose copy starts again is compared
//! from its beginning.

use super::changes::Changes;
use super::position::{ReadSide, VerifyPosition};
use super::ranges::{self, Range};
use super::rows::{self, Sides, SliceResult};
use super::slice::{
    LEAST_BLOCKS, MOST_BLOCKS, noted, position_of, prepare, prepare_next, require_noted, unless,
};
use super::whole;
use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Leaf;
use crate::agent::state::progress::CopyProgress;
use crate::catalog::verification::{self, Verification, VerificationStatus};
use crate::guc;
use crate::remote::Together;
use crate::server::txn::transaction;
use crate::server::wait::{self, WorkerStatus};
use crate::split::blocks::{self, BlockSpan, Extent};
use crate::split::engine::verification::{FailedComparison, Run, When};
use crate::split::engine::{Engine, scope_size, stream_sessions};
use crate::split::verify::parallel;
use std::time::Instant;

/// The number of blocks of the first slice.
const FIRST_BLOCKS: i64 = 256;
/// The number of consecutive attempts to compare a table.
const MOST_FAILURES: u32 = 5;

/// Reads before a step which tables are left, and creates what the sessions need for the next one.
pub fn begin(engine: &mut Engine) -> Result<()> {
    let id = engine.plan.id;
    let tables = transaction(|| verification::outstanding(id));
    let mut run = engine.verification.take().unwrap_or(Run { blocks: FIRST_BLOCKS, ..Run::default() });
    run.tables = tables;
    run.compared.clear();
    run.step_bytes = 0;
    prepare_next(engine, &mut run)?;
    engine.verification = Some(run);
    Ok(())
}

/// Prepares a step in which nothing is compared: what the sessions have is kept for the next one.
pub fn rest(engine: &mut Engine) {
    if let Some(run) = engine.verification.as_mut() {
        run.tables.clear();
        run.compared.clear();
        run.step_bytes = 0;
    }
}

/// Compares slices while the target is at the step's snapshot, until half of the step's time is over, also by the
/// streams that see what it sees. If something cannot be compared, the split follows its source all the same.
pub fn slices(engine: &mut Engine, progress: &CopyProgress, when: When) -> Result<()> {
    let Some(mut run) = engine.verification.take() else { return Ok(()) };
    let result = go_on(engine, &mut run, progress, when);
    let ordinal = run.tables.first().map_or(0, |table| table.ordinal);
    let ended = result.map_err(|error| {
        let text = error.to_string();
        // The next worker's first step, alone, may find the room that streams have not left.
        let may_pass =
            error.is_transient() || engine.streams.held > 0 && stream_sessions::is_in_the_way(&error);
        run.failure = Some(FailedComparison { ordinal, text: text.clone(), may_pass });
        if error.is_transient() {
            error
        } else {
            SplitError::Retry(format!("the next step: tables could not be compared, {text}"))
        }
    });
    engine.verification = Some(run);
    ended
}

fn go_on(engine: &mut Engine, run: &mut Run, progress: &CopyProgress, when: When) -> Result<()> {
    let began = Instant::now();
    let mut bytes = 0;
    if engine.streams.held == 0 {
        small_ones(engine, run, began)?;
    }
    while let Some(table) = run.tables.first().cloned() {
        if parallel::small_ones(engine, run)? {
            if began.elapsed() >= guc::step_time() / 2 {
                return wish(engine, progress);
            }
            continue;
        }
        let Some(position) = position_of(engine, table.ordinal) else {
            run.tables.remove(0);
            continue;
        };
        wait::report_as(WorkerStatus::Working, &format!("comparing {}", engine.tables[position].source.name));
        let known = &progress.tables[position];
        let is_small =
            table.status == VerificationStatus::Pending && whole::is_small(engine, position, known)?;
        let size = if is_small { whole::compare(engine, position)? } else { None };
        if let Some(size) = size {
            let all = Verification {
                rows: size.rows,
                bytes: size.bytes,
                status: VerificationStatus::Passed,
                ..table
            };
            run.note(all, Vec::new());
            continue;
        }
        let known = table.differing;
        let at = VerifyPosition::parse(&table.position);
        let by_ranges = match at.read {
            ReadSide::Ranges => true,
            _ => at == VerifyPosition::default() && ranges::suits(engine, position)?,
        };
        let abreast = if by_ranges {
            parallel::ranges(engine, run, (&table, position), (when, progress))?
        } else {
            parallel::blocks(engine, run, (&table, position), (when, progress))?
        };
        let compared = match (abreast, by_ranges) {
            (Some(bytes), _) => Some(bytes),
            (None, true) => range(engine, run, (table, position), (when, progress))?,
            (None, false) => blocks_of(engine, run, (table, position), (when, progress))?,
        };
        let Some(compared) = compared else { return Ok(()) };
        let differing = run.compared.last().map_or(0, |(table, _)| table.differing);
        if when == When::AfterCutover && differing > known {
            // The log may have become too long since it was asked.
            let changes = Changes::of(&engine.plan, progress, &engine.tables[position], position);
            require_noted(&mut engine.target, &changes)?;
        }
        bytes += compared;
        run.step_bytes = bytes;
        if run.rewritten.is_some() {
            return Ok(());
        }
        let over_rate = guc::max_copy_rate()
            .is_some_and(|rate| bytes as f64 > rate as f64 * guc::step_time().as_secs_f64());
        if began.elapsed() >= guc::step_time() / 2 || over_rate {
            return wish(engine, progress);
        }
    }
    Ok(())
}

/// Requests streams for the following steps, if there is more than one step compares.
fn wish(engine: &mut Engine, progress: &CopyProgress) -> Result<()> {
    engine.streams.wished =
        stream_sessions::wanted(engine, progress, stream_sessions::Locks::OfAllTables)?.saturating_sub(1);
    Ok(())
}

/// The greatest number of tables that are compared in one message.
const MOST_TOGETHER: usize = 32;

/// Compares the small tables that come first, several at a time, as long as both sides are equal.
fn small_ones(engine: &mut Engine, run: &mut Run, began: Instant) -> Result<()> {
    let mut together = Together::up_to(MOST_TOGETHER);
    while began.elapsed() < guc::step_time() / 2 {
        let count = together.begin();
        let next =
            run.tables.iter().take(count).take_while(|table| table.status == VerificationStatus::Pending);
        let mut positions: Vec<usize> = next.map_while(|table| position_of(engine, table.ordinal)).collect();
        if positions.is_empty() {
            return Ok(());
        }
        wait::report_as(
            WorkerStatus::Working,
            &format!("comparing {}", engine.tables[positions[0]].source.name),
        );
        positions.truncate(whole::small_together(engine, &positions)?);
        let compared = whole::compare_together(engine, &positions)?;
        let is_first_left = compared.len() < count || compared.iter().any(Option::is_none);
        for size in compared.into_iter().map_while(|size| size) {
            let Some(table) = run.tables.first().cloned() else { return Ok(()) };
            let all = Verification {
                rows: size.rows,
                bytes: size.bytes,
                status: VerificationStatus::Passed,
                ..table
            };
            run.note(all, Vec::new());
        }
        if is_first_left {
            return Ok(());
        }
        together.end();
    }
    Ok(())
}

/// Compares the next blocks of a table and returns the bytes of their rows. Returns None if the sessions do not have
/// the tables yet that this needs.
fn blocks_of(
    engine: &mut Engine,
    run: &mut Run,
    (table, position): (Verification, usize),
    (when, progress): (When, &CopyProgress),
) -> Result<Option<i64>> {
    if !prepare(engine, run, (&table, position), when)? {
        return Ok(None);
    }
    let unless = unless(engine, progress, position, when)?;
    slice(engine, run, (table, position), (when, &unless)).map(Some)
}

/// Compares the next range of a table's key, with the same result.
fn range(
    engine: &mut Engine,
    run: &mut Run,
    (table, position): (Verification, usize),
    (when, progress): (When, &CopyProgress),
) -> Result<Option<i64>> {
    let began = Instant::now();
    let at = VerifyPosition { read: ReadSide::Ranges, ..VerifyPosition::parse(&table.position) };
    let is_first = run.keys == 0 || at.after.is_empty();
    let keys = if is_first { ranges::first_keys(engine, position)? } else { run.keys };
    let range = Range::next(engine, position, &at, keys)?;
    let compared = match range.compare(engine, position)? {
        Some(size) => SliceResult { rows: size.rows, bytes: size.bytes, ..SliceResult::default() },
        None => {
            if !prepare(engine, run, (&table, position), when)? {
                return Ok(None);
            }
            let unless = unless(engine, progress, position, when)?;
            range.compare_rows(engine, position, (when, &unless))?
        }
    };
    let factor = blocks::by_time(began.elapsed()) / 4.0;
    run.keys = blocks::adapt(keys, factor, ranges::LEAST_KEYS, ranges::MOST_KEYS);
    let (bytes, differing) = (compared.bytes, table.differing + compared.differing);
    let (status, position) = match range.to {
        Some(after) => (VerificationStatus::Running, VerifyPosition { after, ..at }.to_text()),
        None if differing == 0 => (VerificationStatus::Passed, table.position.clone()),
        None => (VerificationStatus::Differs, table.position.clone()),
    };
    let (next, found) = noted(table, compared, status, position);
    run.note(next, found);
    Ok(Some(bytes))
}

/// Compares the next blocks of a table; returns the bytes of their rows.
fn slice(
    engine: &mut Engine,
    run: &mut Run,
    (table, position): (Verification, usize),
    (when, unless): (When, &str),
) -> Result<i64> {
    let mut at = VerifyPosition::parse(&table.position);
    // Rows that only the target has may have been inserted by its clients since.
    let is_whole = when == When::AfterCutover && at.read == ReadSide::Target;
    let oids = |leaves: &[Leaf]| leaves.iter().map(|leaf| leaf.oid.clone()).collect::<Vec<_>>();
    let shape = match at.read {
        ReadSide::Target => &engine.tables[position].target,
        ReadSide::Source | ReadSide::Ranges => &engine.tables[position].source,
    };
    let leaf = if is_whole { None } else { at.next_leaf(&oids(shape.leaves())) };
    let Some(oid) = leaf else {
        let is_done = when == When::AfterCutover || !at.turn();
        let status = match (is_done, table.differing) {
            (false, _) => VerificationStatus::Running,
            (true, 0) => VerificationStatus::Passed,
            (true, _) => VerificationStatus::Differs,
        };
        run.note(Verification { status, position: at.to_text(), ..table }, Vec::new());
        return Ok(0);
    };
    let leaf = shape.leaves().iter().find(|leaf| leaf.oid == oid).map_or(String::new(), |l| l.name.clone());
    let began = Instant::now();
    let session = match at.read {
        ReadSide::Target => &mut engine.target,
        ReadSide::Source | ReadSide::Ranges => &mut engine.reader,
    };
    let Extent { blocks: total, file, .. } = blocks::of_leaf(session, &oid)?;
    if !at.is_of(file) {
        run.rewritten = Some(table.ordinal);
        return Ok(0);
    }
    let blocks = (at.block, run.blocks, total);
    let (compared, to) = compare(engine, position, (at.read, &leaf), blocks, unless)?;
    if to.is_some() {
        let factor = blocks::by_time(began.elapsed()) / 4.0;
        run.blocks = blocks::adapt(run.blocks, factor, LEAST_BLOCKS, MOST_BLOCKS);
    }
    at.passed(to);
    let bytes = compared.bytes;
    let (next, found) = noted(table, compared, VerificationStatus::Running, at.to_text());
    run.note(next, found);
    Ok(bytes)
}

/// Compares `size` blocks of a leaf, beginning at `from`. Returns where they end, or None at the leaf's end.
fn compare(
    engine: &mut Engine,
    position: usize,
    (read, leaf): (ReadSide, &str),
    (from, size, total): (i64, i64, i64),
    unless: &str,
) -> Result<(SliceResult, Option<i64>)> {
    let Engine { plan, reader, target, tables, .. } = engine;
    let table = &tables[position];
    let (session, by) = match read {
        ReadSide::Target => (&mut *target, &table.target_by),
        ReadSide::Source | ReadSide::Ranges => (&mut *reader, &table.source_by),
    };
    let is_small = from == 0 && scope_size::is_small(session, leaf, by, &plan.scope)?;
    let span = BlockSpan::next(from, size, total, is_small);
    let condition = span.condition(&plan.scope.predicate(by, "t"));
    let mut sides = Sides { plan, table, source: reader, target };
    let compared = match read {
        ReadSide::Target => rows::of_target(&mut sides, leaf, &condition)?,
        ReadSide::Source | ReadSide::Ranges => rows::of_source(&mut sides, leaf, &condition, unless)?,
    };
    Ok((compared, span.to))
}

/// Records that the next table cannot be compared.
pub fn give_up(engine: &mut Engine, text: String) {
    if let Some(run) = engine.verification.as_mut()
        && let Some(table) = run.tables.first()
    {
        run.failure = Some(FailedComparison { ordinal: table.ordinal, text, may_pass: false });
    }
}

/// Records what a step, or a check after the cutover, has found, if it came to its end. `failures` counts consecutive
/// steps that failed because of a comparison; in the end the comparison is aborted, and the split follows its source
/// without it.
pub fn record(engine: &mut Engine, ended: Option<Ended>, failures: &mut u32) {
    let id = engine.plan.id;
    let Some(run) = engine.verification.as_mut() else { return };
    let rewritten = run.rewritten.take();
    if let Some(failed) = run.failure.take() {
        *failures += 1;
        if !failed.may_pass || *failures >= MOST_FAILURES {
            *failures = 0;
            transaction(|| verification::fail(id, failed.ordinal, &failed.text));
        }
    }
    let Some(ended) = ended else { return };
    *failures = 0;
    if ended == Ended::CopyRestarted {
        transaction(|| verification::begin_again(id, None));
    } else if !run.compared.is_empty() {
        transaction(|| run.compared.iter().for_each(|(table, found)| verification::store(id, table, found)));
    }
    if rewritten.is_some() {
        transaction(|| verification::begin_again(id, rewritten));
    }
    run.compared.clear();
}

/// How a step has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Committed,
    /// The step was committed, and the copy of a table begins again.
    CopyRestarted,
}
