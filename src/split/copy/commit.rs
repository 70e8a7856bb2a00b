//! The end of a step: the source has the step's number on its disk, then the target commits rows and progress, then
//! the source removes the copied changes from its queues.

use super::{leaves, window};
use crate::agent::error::Result;
use crate::agent::shape::Observation;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::{consumed, lease, progress};
use crate::remote::result::Rows;
use crate::split::copy::outcome::StepOutcome;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Counted, Engine, QueueState};
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use std::collections::BTreeSet;
use std::time::Instant;

/// 6. Stores the progress beside the rows, makes S durable on the source, commits, and consumes the queues.
pub fn commit(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    outcome.progress.worker = engine.tenure.generation;
    commit_as(engine, outcome, now, Reading::Ends)
}

/// Commits a step whose S is read further: the reading transaction continues.
pub fn commit_and_read_on(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    outcome.progress.worker = engine.tenure.generation;
    commit_as(engine, outcome, now, Reading::GoesOn)
}

/// Commits a step before the chunks of S are copied: the reading transaction continues, and until they are copied the
/// progress names the earlier worker.
pub fn commit_before_chunks(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    commit_as(engine, outcome, now, Reading::GoesOn)
}

/// What happens to the reading transaction, which holds locks, when a step is committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Ends,
    GoesOn,
}

fn commit_as(
    engine: &mut Engine,
    outcome: &mut StepOutcome,
    now: &Observation,
    reading: Reading,
) -> Result<()> {
    let store = announced(engine, outcome)?;
    engine.sessions.target.run(&format!("{store}; COMMIT"))?;
    reach(injection_points::STEP_COMMITTED)?;
    engine.queues.counted = Some(Counted { since: now.snapshot.clone(), rows: None });
    if reading == Reading::Ends {
        engine.sessions.reader.send("COMMIT")?;
    }
    if let Some(statements) = consuming(engine.tenure.plan.id, &engine.tables, &engine.queues, outcome, now) {
        engine.sessions.control_transaction(&engine.tenure, &statements)?;
        engine.queues.filled = Some(BTreeSet::new());
    }
    if reading == Reading::Ends {
        engine.sessions.reader.finish()?;
    }
    reach(injection_points::STEP_CONSUMED)?;
    Ok(())
}

/// Queries that are sent to each side while the target commits: to the target after its commit.
pub struct CommitQuestions {
    pub target: String,
    pub source: String,
}

/// The answers of both sides, and the time from which both may have been valid.
pub struct CommitAnswers {
    pub target: Vec<Rows>,
    pub source: Vec<Rows>,
    pub heard: Instant,
}

/// Commits behind a fence, where the reading transaction continues. Writers do not wait for the source to consume its
/// queues: that is postponed.
pub fn commit_and_ask(
    engine: &mut Engine,
    outcome: &mut StepOutcome,
    now: &Observation,
    beside: &CommitQuestions,
) -> Result<CommitAnswers> {
    outcome.progress.worker = engine.tenure.generation;
    let store = announced(engine, outcome)?;
    let sent = Instant::now();
    engine.sessions.control.send(&beside.source)?;
    let target = engine.sessions.target.run_for_each(&format!("{store}; COMMIT; {}", beside.target));
    let source = engine.sessions.control.finish_for_each();
    let (target, source) = (target?, source?);
    reach(injection_points::STEP_COMMITTED)?;
    engine.queues.counted = Some(Counted { since: now.snapshot.clone(), rows: None });
    // An answer may have been given long before it was received, but not earlier than the round trip permits.
    let heard = (sent + engine.sessions.distance).min(Instant::now());
    engine.queues.owed = consuming(engine.tenure.plan.id, &engine.tables, &engine.queues, outcome, now);
    Ok(CommitAnswers { target, source, heard })
}

/// Makes the step's number durable on the source, and S with it; returns the statement that stores the progress on the
/// target.
fn announced(engine: &mut Engine, outcome: &mut StepOutcome) -> Result<String> {
    leaves::check_unchanged(engine, &outcome.progress)?;
    let before = outcome.progress.steps;
    outcome.progress.steps = engine.queues.counters.next_step(before);
    if engine.queues.announced.take() != Some(outcome.progress.steps) {
        send_announcement(&engine.tenure, &mut engine.sessions, &mut engine.queues, before, None)?;
        take_announcement(&mut engine.sessions, &mut engine.queues)?;
        engine.queues.announced = None;
    }
    reach(injection_points::STEP_DURABLE)?;
    Ok(progress::storing(engine.tenure.plan.id, &outcome.progress))
}

/// Returns the statement that removes a committed step from the queues, or None if it has nothing of them.
fn consuming(
    split: i64,
    tables: &[SplitTable],
    queues: &QueueState,
    outcome: &StepOutcome,
    now: &Observation,
) -> Option<String> {
    let has_changes = outcome.changes > 0 || outcome.restarted.is_some();
    has_changes.then(|| window::consume(split, tables, queues, &now.snapshot, outcome.progress.steps))
}

/// Commits synchronously on the source after S: everything that S saw is on its disk by then. Without this, rows of
/// asynchronous commits would be lost in a crash, their transaction ids given out again, and later writes skipped. It
/// writes the number of the step, so that a source that has forgotten it is noticed.
///
/// `deciding` is the run of the master that may decide, if this is the last step of a cutover. The answer is received
/// later: rows may be copied meanwhile, but are committed only after it.
pub fn send_announcement(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    queues: &mut QueueState,
    before: i64,
    deciding: Option<&str>,
) -> Result<()> {
    let (id, step) = (tenure.plan.id, queues.counters.next_step(before));
    let mut statements = vec![lease::renew(id), consumed::announce(id, step)];
    statements.extend(deciding.map(|instance| consumed::decide(id, instance)));
    queues.announced = Some(step);
    sessions.send_control_transaction(tenure, &statements.join("; "))
}

/// Receives that answer. It must be received whatever happened to the rows: the session is the one that opens the
/// source again.
pub fn take_announcement(sessions: &mut EngineSessions, queues: &mut QueueState) -> Result<()> {
    sessions.take_control_transaction().inspect_err(|_| queues.announced = None)
}
