//! The end of a step: the source has its number on its disk, then the target commits rows and progress, then the
//! source gives away what has come over.

use super::{leaves, window};
use crate::agent::error::Result;
use crate::agent::shape::Observation;
use crate::agent::state::{consumed, lease, progress};
use crate::remote::result::Rows;
use crate::split::copy::outcome::StepOutcome;
use crate::split::engine::Engine;
use crate::split::engine::counted::Counted;
use crate::split::injection_points::{self, reach};
use std::collections::BTreeSet;
use std::time::Instant;

/// 6. Progress beside the rows, S durable on the source, commit, consume.
pub fn commit(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    outcome.progress.worker = engine.generation;
    commit_as(engine, outcome, now, Reading::Ends)
}

/// The same where S is read further: the reading transaction goes on.
pub fn commit_and_read_on(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    outcome.progress.worker = engine.generation;
    commit_as(engine, outcome, now, Reading::GoesOn)
}

/// The same where the chunks of S are still to come: the reading transaction goes on, and until they have come the worker is
/// the one before.
pub fn commit_before_chunks(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation) -> Result<()> {
    commit_as(engine, outcome, now, Reading::GoesOn)
}

/// What becomes of the reading transaction, which holds locks, when a step is committed.
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
    engine.target.run(&format!("{store}; COMMIT"))?;
    reach(injection_points::STEP_COMMITTED)?;
    engine.counted = Some(Counted { since: now.snapshot.clone(), rows: None });
    if reading == Reading::Ends {
        engine.reader.send("COMMIT")?;
    }
    if let Some(statements) = consuming(engine, outcome, now) {
        engine.control_transaction(&statements)?;
        engine.filled = Some(BTreeSet::new());
    }
    if reading == Reading::Ends {
        engine.reader.finish()?;
    }
    reach(injection_points::STEP_CONSUMED)?;
    Ok(())
}

/// Questions that go to each side while the target commits: to the target behind its commit.
pub struct CommitQuestions {
    pub target: String,
    pub source: String,
}

/// What both sides have answered, and since when both may have.
pub struct CommitAnswers {
    pub target: Vec<Rows>,
    pub source: Vec<Rows>,
    pub heard: Instant,
}

/// The same behind a fence, where the reading transaction goes on and no writer waits for what the source gives away:
/// that is owed.
pub fn commit_and_ask(
    engine: &mut Engine,
    outcome: &mut StepOutcome,
    now: &Observation,
    beside: &CommitQuestions,
) -> Result<CommitAnswers> {
    outcome.progress.worker = engine.generation;
    let store = announced(engine, outcome)?;
    let sent = Instant::now();
    engine.control.send(&beside.source)?;
    let target = engine.target.run_for_each(&format!("{store}; COMMIT; {}", beside.target));
    let source = engine.control.finish_for_each();
    let (target, source) = (target?, source?);
    reach(injection_points::STEP_COMMITTED)?;
    engine.counted = Some(Counted { since: now.snapshot.clone(), rows: None });
    // One of them may have come long before it was taken, but not before its line had let it.
    let heard = (sent + engine.distance).min(Instant::now());
    engine.owed = consuming(engine, outcome, now);
    Ok(CommitAnswers { target, source, heard })
}

/// The step's number is on the source's disk, and S with it; what stores its progress on the target.
fn announced(engine: &mut Engine, outcome: &mut StepOutcome) -> Result<String> {
    leaves::check_unchanged(engine, &outcome.progress)?;
    let before = outcome.progress.steps;
    outcome.progress.steps = engine.counters.next_step(before);
    if engine.announced.take() != Some(outcome.progress.steps) {
        send_announcement(engine, before)?;
        take_announcement(engine)?;
        engine.announced = None;
    }
    reach(injection_points::STEP_DURABLE)?;
    Ok(progress::storing(engine.plan.id, &outcome.progress))
}

/// What takes a committed step out of the queues; None: it has nothing of them.
fn consuming(engine: &Engine, outcome: &StepOutcome, now: &Observation) -> Option<String> {
    let has_changes = outcome.changes > 0 || outcome.restarted.is_some();
    has_changes.then(|| window::consume(engine, &now.snapshot, outcome.progress.steps))
}

/// A synchronous commit on the source after S: everything that S saw has reached
/// its disk by then. Without it rows of asynchronous commits were forgotten in a
/// crash, their transaction ids given out again, and later writes skipped. What it
/// writes is the number of the step, so that a source which has forgotten it is noticed.
///
/// The answer is still to be taken: rows may come over meanwhile, but are committed only behind it.
pub fn send_announcement(engine: &mut Engine, before: i64) -> Result<()> {
    let (id, step) = (engine.plan.id, engine.counters.next_step(before));
    let mut statements = vec![lease::renew(id), consumed::announce(id, step)];
    statements.extend(engine.deciding.take().map(|instance| consumed::decide(id, &instance)));
    engine.announced = Some(step);
    engine.send_control_transaction(&statements.join("; "))
}

/// To be taken whatever became of the rows: the session is the one that opens the source again.
pub fn take_announcement(engine: &mut Engine) -> Result<()> {
    engine.take_control_transaction().inspect_err(|_| engine.announced = None)
}
