//! The comparison of a split's tables, one slice at a time.
//!
//! Invariant: what a table's position has passed was equal, or is counted and reported, at a snapshot of the source at
//! which the target stood. So a worker that starts again continues there; a table whose copy starts again is compared
//! from its beginning.

use super::changes::Changes;
use super::position::{ReadSide, VerifyPosition};
use super::slice::{ComparedTable, position_of, prepare_next, require_noted};
use super::{ranges, slices, small_batch, whole};
use crate::agent::error::{Result, SplitError};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::CopyProgress;
use crate::catalog::verification::{self, Verification, VerificationStatus};
use crate::guc;
use crate::server::txn::transaction;
use crate::server::wait::{self, WorkerStatus};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::verification::{FailedComparison, Run, When};
use crate::split::engine::{Engine, StepMode, stream_sessions};
use std::time::Instant;

/// The number of blocks of the first slice.
const FIRST_BLOCKS: i64 = 256;
/// The number of consecutive attempts to compare a table.
const MOST_FAILURES: u32 = 5;

/// Reads before a step which tables are left, and creates what the sessions need for the next one.
pub fn begin(engine: &mut Engine) -> Result<()> {
    let id = engine.tenure.plan.id;
    let tables = transaction(|| verification::outstanding(id));
    let mut run = engine.verification.take().unwrap_or(Run { blocks: FIRST_BLOCKS, ..Run::default() });
    run.tables = tables;
    run.compared.clear();
    run.step_bytes = 0;
    prepare_next(&mut engine.sessions, &engine.tables, &mut engine.seen, &mut run)?;
    engine.verification = Some(run);
    Ok(())
}

/// Prepares a step in which nothing is compared: what the sessions have is kept for the next one.
pub fn rest(run: Option<&mut Run>) {
    if let Some(run) = run {
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
        let may_pass = error.is_transient()
            || engine.sessions.streams.held > 0 && stream_sessions::is_in_the_way(&error);
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
    let (mut bytes, mut size) = (0, small_batch::size());
    while let Some(table) = run.tables.first().cloned() {
        let compared = match small_batch::compare(
            &engine.tenure.plan,
            &mut engine.sessions,
            &engine.tables,
            run,
            &mut size,
        )? {
            Some(compared) => Some(compared),
            None => next(engine, run, table, progress, when)?,
        };
        let Some(compared) = compared else { return Ok(()) };
        bytes += compared;
        run.step_bytes = bytes;
        if run.rewritten.is_some() {
            return Ok(());
        }
        let over_rate = guc::max_copy_rate()
            .is_some_and(|rate| bytes as f64 > rate as f64 * guc::step_time().as_secs_f64());
        if began.elapsed() >= guc::step_time() / 2 || over_rate {
            return wish(engine.tenure.plan.id, &mut engine.sessions, engine.mode, progress);
        }
    }
    Ok(())
}

/// Compares a table that is not among the small ones: at once if an index finds its few rows, otherwise its next
/// slices. Returns the bytes of the rows, or None if the sessions do not have the tables yet that this needs.
fn next(
    engine: &mut Engine,
    run: &mut Run,
    table: Verification,
    progress: &CopyProgress,
    when: When,
) -> Result<Option<i64>> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, .. } = engine;
    let Some(position) = position_of(tables, table.ordinal) else {
        run.tables.remove(0);
        return Ok(Some(0));
    };
    wait::report_as(WorkerStatus::Working, &format!("comparing {}", tables[position].source.name));
    let is_small = table.status == VerificationStatus::Pending
        && whole::is_small(plan, sessions, &tables[position], &progress.tables[position])?;
    if is_small && let Some(size) = whole::compare(plan, sessions, &tables[position])? {
        run.note_same(table, size.rows, size.bytes);
        return Ok(Some(size.bytes));
    }
    let at = VerifyPosition::parse(&table.position);
    let is_by_ranges = match at.read {
        ReadSide::Ranges => true,
        ReadSide::Source | ReadSide::Target => {
            at == VerifyPosition::default() && ranges::suits(plan, sessions, &tables[position])?
        }
    };
    let of = ComparedTable { record: &table, table: &tables[position], position, when, progress };
    let compared = if is_by_ranges {
        slices::ranges(plan, sessions, run, of)?
    } else {
        slices::blocks(plan, sessions, run, of)?
    };
    let differing = run.compared.last().map_or(0, |(table, _)| table.differing);
    if compared.is_some() && when == When::AfterCutover && differing > table.differing {
        // The log may have become too long since it was asked.
        let changes = Changes::of(plan, progress, &tables[position], position);
        require_noted(&mut sessions.target, &changes)?;
    }
    Ok(compared)
}

/// Requests streams for the following steps, if there is more than one step compares.
fn wish(split: i64, sessions: &mut EngineSessions, mode: StepMode, progress: &CopyProgress) -> Result<()> {
    sessions.streams.wished =
        stream_sessions::wanted(split, sessions, mode, progress, stream_sessions::Locks::OfAllTables)?
            .saturating_sub(1);
    Ok(())
}

/// Records that the next table cannot be compared.
pub fn give_up(run: Option<&mut Run>, text: String) {
    if let Some(run) = run
        && let Some(table) = run.tables.first()
    {
        run.failure = Some(FailedComparison { ordinal: table.ordinal, text, may_pass: false });
    }
}

/// Records what a step, or a check after the cutover, has found, if it came to its end. `failures` counts consecutive
/// steps that failed because of a comparison; in the end the comparison is aborted, and the split follows its source
/// without it.
pub fn record(id: i64, run: Option<&mut Run>, ended: Option<Ended>, failures: &mut u32) {
    let Some(run) = run else { return };
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
