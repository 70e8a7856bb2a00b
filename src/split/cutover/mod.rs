//! The cutover: the one moment in which writers of the moving keys wait. One commit on the master decides; everything
//! before it can be undone, everything after it only goes forward.
//!
//! No wait before the decision outlasts the deadline, whatever happens to a server or to the connection: each session
//! ends its waits at it, and the fence ends automatically.

mod behind;
pub mod complete_target;
pub mod decision;
pub mod ended;
pub mod fence;
pub mod old_guards;
pub mod on_master;
pub mod open;
pub mod recovery;
pub mod side_state_check;
pub mod source;
pub mod watch;

use super::copy::compare::{self, Differences};
use super::copy::outcome::StepOutcome;
use super::copy::window::{self, WindowEntries};
use super::copy::{commit, foreign_keys, leaves, step};
use super::engine::Engine;
use super::injection_points::{self, reach};
use super::sequences;
use super::{record, since_check, unregistered};
use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Observation;
use crate::agent::state::decision::{Decided, EarlierDecisions};
use crate::agent::state::epoch;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::CopyProgress;
use crate::agent::state::side::{self, Version};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{self, CutoverRequest, CutoverStep, Goal};
use crate::catalog::{reference, split_progress};
use crate::guc;
use crate::remote::{Connection, number};
use crate::routing::change;
use crate::server::retry::{self, Attempt, Backoff};
use crate::server::standby::{self, Standby};
use crate::server::txn::{transaction, try_transaction, with_lock_timeout};
use crate::server::{instance, wait};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{StepMode, holders, locks};
use crate::split::{aborted, phases, reverse_preconditions, untrusted_code};
use crate::words::counted;
use behind::{FenceAnswers, FenceQuestions};
use fence::Fence;
use pgrx::prelude::TimestampWithTimeZone;
use std::time::{Duration, Instant};

/// The time beyond the deadline for a query that is running.
const TO_ASK: Duration = Duration::from_millis(500);

/// How a cutover is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    Decide,
    /// It is undone right before its decision.
    Rehearse,
}

/// What a rehearsal has found.
pub struct Rehearsed {
    /// When the first writer had to wait.
    pub began: Instant,
    /// The sessions that the fence waited for before it was taken.
    pub waited_for: Option<String>,
}

/// Carries out steps 1 to 6, with the time limit for those up to the decision. An aborted cutover admits the source's
/// writers at once, in the session that has blocked them; its record on the master may have to wait there.
pub fn run(engine: &mut Engine, aim: Aim, limit: Duration) -> Result<Option<Rehearsed>> {
    let mut is = FencedSource::Open;
    // The fence is kept until the source is open again: writers that wait for it are then admitted, not refused.
    let mut held = None;
    let outcome = steps(engine, &mut is, &mut held, aim, limit);
    if is == FencedSource::Fenced && !matches!(outcome, Ok(None)) {
        engine.sessions.set_deadline(Some(Instant::now() + TO_ASK));
        // If this does not succeed, recovery does it.
        let _ = source::reopen(&mut engine.sessions.control, engine.tenure.plan.id, engine.tenure.generation);
        drop(held);
        // Otherwise it would count as changes that the target lacks, until the next ones come.
        if let Some(owed) = engine.queues.owed.take() {
            let _ = engine.sessions.control_transaction(&engine.tenure, &owed);
        }
        reach(injection_points::CUTOVER_REOPENED)?;
    }
    outcome
}

const ALONE: &str = "the synchronous standby of the master has not confirmed the decision in time; if it were promoted without it, it would adopt it from the shards";

/// What this cutover has done to its source.
#[derive(PartialEq, Eq)]
enum FencedSource {
    Open,
    /// The source is fenced, or about to be.
    Fenced,
    /// The cutover is decided: the source is not opened any more.
    Left,
}

fn steps(
    engine: &mut Engine,
    is: &mut FencedSource,
    held: &mut Option<Connection>,
    aim: Aim,
    limit: Duration,
) -> Result<Option<Rehearsed>> {
    foreign_keys::check_all(engine)?;
    let mut asked = behind::prepare(&engine.tenure.plan, &mut engine.sessions, &engine.tables)?;
    let fence_session = held.insert(fence::open(&engine.tenure.plan, &engine.sessions)?);

    let deadline = Instant::now() + limit;
    // At the deadline, the sessions that delay the cutover are still to be asked for.
    fence_session.set_deadline(Some(deadline + TO_ASK));
    let Engine { tenure, sessions, tables, seen, .. } = &mut *engine;
    sessions.set_deadline(Some(deadline + TO_ASK));
    disable_routes(tenure, aim, deadline)?;
    let began = Instant::now();
    reach(injection_points::CUTOVER_DISABLED)?;
    let locks = locks::source_for_cutover(tables, &seen.parents);
    let fence = &mut Fence { session: fence_session, deadline };
    let waited_for =
        fence::take(&tenure.plan, sessions, tables, fence, Some(&locks)).map_err(aborted::deadline_passed)?;
    reach(injection_points::CUTOVER_LOCKED)?;
    in_time(deadline)?;
    *is = FencedSource::Fenced;
    close_fence(tenure, &mut sessions.control)?;
    reach(injection_points::CUTOVER_FENCED)?;
    in_time(deadline)?;
    let (outcome, found) = apply_last_window(engine, fence, &asked)?;
    reach(injection_points::CUTOVER_APPLIED)?;
    in_time(deadline)?;
    let (positions, heard) = ([&*found.source, &*found.target], found.heard);
    asked.sequences.raise(engine, positions, deadline).map_err(aborted::deadline_passed)?;
    reach(injection_points::CUTOVER_SEQUENCES)?;
    if Instant::now() > deadline {
        return Err(SplitError::Aborted(aborted::because("the last changes to be applied")));
    }
    require_both(&mut engine.sessions, heard)?;
    if aim == Aim::Rehearse {
        return Ok(Some(Rehearsed { began, waited_for }));
    }
    let Engine { tenure, sessions, queues, .. } = engine;
    let id = tenure.plan.id;
    let (version, standby) = decide_by(deadline, tenure, outcome.progress.last_event_id)?;
    *is = FencedSource::Left;
    sessions.set_deadline(None);
    reach(injection_points::CUTOVER_DECIDED)?;
    follow_sequences(id, sessions, &mut asked)?;
    open::open_and_consume(tenure, sessions, queues, version, found)?;
    reach(injection_points::CUTOVER_OPENED)?;
    move_and_release(tenure, sessions, fence, version)?;
    reach(injection_points::CUTOVER_MOVED)?;
    *held = None;
    record_moved(&tenure.plan, Some(began.elapsed()));
    tell_waited_for(id, waited_for.as_deref());
    transaction(|| {
        standby::commit_alone();
        split_progress::last_event(id, outcome.progress.last_event_at);
        if standby == Standby::Unknown {
            split::event(id, None, None, ALONE);
        }
    });
    Ok(None)
}

/// Up to here no lock keeps clients from drawing from the source's sequences.
fn follow_sequences(split: i64, sessions: &mut EngineSessions, asked: &mut FenceQuestions) -> Result<()> {
    if let Some(reason) = asked.sequences.follow(sessions)? {
        sequences::tell(split, &reason);
    }
    Ok(())
}

/// Checks the deadline, so that a worker that its own machine has delayed does not blame a healthy shard.
fn in_time(deadline: Instant) -> Result<()> {
    if Instant::now() <= deadline {
        Ok(())
    } else {
        Err(SplitError::Aborted(aborted::because("its own worker, which was delayed past the deadline")))
    }
}

/// 0. Waits until a cutover can succeed: the lag is small and no session has held the capture lock for long. These are
///    ordinary steps, for which nobody waits; they have as long as the rest.
pub fn be_ready(engine: &mut Engine) -> Result<()> {
    reach(injection_points::CUTOVER_BEGIN)?;
    const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(100));
    let deadline = Instant::now() + guc::cutover_timeout();
    let _status = wait::status_scope();
    unregistered::require_none_before_cutover(&mut engine.sessions.control, &engine.tenure.plan)?;
    since_check::require_as_checked(&engine.tenure.plan, &mut engine.sessions, &engine.tables)?;
    let asked = transaction(reference::now);
    let mut waited_for = None;
    let is_ready = retry::until(deadline, PAUSES, || {
        let Some(reason) = not_ready(engine, asked)? else { return Ok::<_, SplitError>(Attempt::Done(())) };
        waited_for = Some(reason.clone());
        Ok(Attempt::Waits(reason))
    })?;
    is_ready.map_err(|reason| SplitError::Aborted(aborted::because(&reason)))?;
    tell_waited_for(engine.tenure.plan.id, waited_for.as_deref());
    Ok(())
}

/// Makes an ordinary step. Returns why a cutover could not succeed now.
fn not_ready(engine: &mut Engine, asked: Option<TimestampWithTimeZone>) -> Result<Option<String>> {
    untrusted_code::look_again_soon();
    let outcome = match step::run(engine) {
        Err(SplitError::Remote(error)) if error.is_lock_timeout() => {
            let reason =
                fence::table_holders(&engine.tenure.plan, &mut engine.sessions.control, &engine.tables)
                    .unwrap_or_else(|_| error.to_string());
            return Err(SplitError::Aborted(aborted::because(&reason)));
        }
        other => other?,
    };
    if let Some(why) = &outcome.restarted {
        transaction(|| split::event_again(engine.tenure.plan.id, &format!("the copy starts again: {why}")));
    }
    if !outcome.progress.is_copied() {
        // The backfill does that, and faster than attempts at a cutover.
        return Err(SplitError::Aborted(aborted::because(aborted::COPIES_AGAIN)));
    }
    if outcome.changes > guc::cutover_max_rows() {
        return Ok(Some(format!("the lag to fall: {} changed rows in the last window", outcome.changes)));
    }
    if outcome.lag > guc::max_lag() {
        return Ok(Some(format!("the lag to fall: the last window took {} ms", outcome.lag.as_millis())));
    }
    // What clients have seen on the source by now they see on the target.
    let reference = asked.and_then(|asked| {
        transaction(|| {
            reference::holds_up(&engine.tenure.plan.keyspace, &engine.tenure.plan.target.shard_key, asked)
        })
    });
    if reference.is_some() {
        return Ok(reference);
    }
    let old = holders::holders(&mut engine.sessions.control, engine.tenure.plan.id)?
        .into_iter()
        .find(|holder| holder.old);
    Ok(old.map(|holder| {
        format!(
            "a writer's transaction on shard \"{}\": {}",
            engine.tenure.plan.source.shard_key, holder.text
        )
    }))
}

/// Records it for the history, and for the summary of shard_split_run().
fn tell_waited_for(id: i64, who: Option<&str>) {
    if let Some(who) = who {
        transaction(|| {
            standby::commit_alone();
            split_progress::fence_waited_for(id, who);
            split::event(id, None, None, &format!("the cutover waited for {who}"));
        });
    }
}

/// The age up to which an answer counts as a sign of life.
const LATELY: Duration = Duration::from_millis(20);

/// Checks that the target, which is indispensable after the decision, has answered just now, and so has the source, in
/// the session that has fenced it: the source was not restarted from an older disk since. A worker that was delayed
/// asks both once more.
fn require_both(sessions: &mut EngineSessions, heard: Instant) -> Result<()> {
    if heard.elapsed() > LATELY {
        sessions.target.send("SELECT 1")?;
        sessions.control.run("SELECT 1")?;
        sessions.target.finish()?;
    }
    Ok(())
}

/// 1. Disables writes by routes; reads go to the source. It changes the entries in place, without a version. If the
///    master's synchronous standby is away, this shows it before writers are blocked.
fn disable_routes(tenure: &Tenure, aim: Aim, deadline: Instant) -> Result<()> {
    let ((), standby) = on_master::by(deadline, || {
        let state = row::lock(tenure.plan.id)?;
        if state.generation != tenure.generation {
            return Err(SplitError::Superseded);
        }
        // Requests of the operator count up to here.
        let is_asked_for = match aim {
            Aim::Decide => is_asked_for_now(&state),
            Aim::Rehearse => state.request == CutoverRequest::Rehearsal && state.goal != Goal::RolledBack,
        };
        if !phases::is_before_decision(state.phase) || !is_asked_for {
            return Err(SplitError::Retry("the cutover to be requested again".into()));
        }
        change::set_moving(&tenure.plan.keyspace, &tenure.plan.entries, &tenure.plan.target.shard_key)?;
        // If it is too late, no writer is kept waiting.
        if Instant::now() > deadline {
            let routes = counted(tenure.plan.entries.len(), "route", "routes");
            return Err(SplitError::Aborted(aborted::because(&format!(
                "the master, which had {routes} to disable"
            ))));
        }
        // Writers wait from this time on.
        split_state::cutover::step(tenure.plan.id, CutoverStep::Disabled);
        Ok(())
    })?;
    match standby {
        Standby::HasIt => Ok(()),
        Standby::Unknown => {
            Err(SplitError::Aborted(aborted::because("the synchronous standby of the master")))
        }
    }
}

/// Whether a cutover is due now: a new request may have a window that has not begun.
fn is_asked_for_now(state: &SplitState) -> bool {
    phases::asks_for_cutover(state.goal) && state.request == CutoverRequest::Now
}

/// 3. Sets the state that writers read once they have the lock. If the fence is still held, which is checked from now
///    on, no writer has read the earlier state.
pub fn close_fence(tenure: &Tenure, control: &mut Connection) -> Result<()> {
    let (id, generation) = (tenure.plan.id, tenure.generation);
    if !epoch::change(control, id, generation, &side::FENCE, Version::None)? {
        return Err(SplitError::Retry("the state of the source to be cleared up".into()));
    }
    Ok(())
}

/// 4. Runs the reading session's first query: S_f sees every write that there will ever be on the source, if the fence
///    is held.
fn apply_last_window(
    engine: &mut Engine,
    fence: &mut Fence<'_>,
    asked: &FenceQuestions,
) -> Result<(StepOutcome, FenceAnswers)> {
    let locked = engine.seen.parents.clone();
    fence::ask_whether_held(fence)?;
    step::send_begin_target(engine)?;
    let now = step::observe_source(engine)?;
    fence::take_whether_held(fence)?;
    if engine.seen.parents != locked {
        return Err(SplitError::Retry("the partitions of the source, which have just changed".into()));
    }
    let (mut before, there) = step::finish_begin_target(engine, &now)?;
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, queues, .. } = &mut *engine;
    let lost = leaves::admit(plan, &mut sessions.target, tables, &mut before, &there)?;
    let differences = compare::compare(plan, tables, &queues.counters, &before, &now)?;
    if differences.restart.is_some()
        || !(lost.is_empty() && differences.reset.is_empty())
        || !(differences.grown.is_empty() && differences.uncaptured.is_empty())
    {
        return Err(SplitError::Retry("the copy, which has to start again".into()));
    }
    let entries = window::count(&mut sessions.reader, tables, queues, &before)?;
    let waiting = number::sum(entries.iter().map(|entry| entry.rows));
    if Instant::now() > fence.deadline {
        return Err(SplitError::Aborted(aborted::because("writers for most of shardmaster.cutover_timeout")));
    }
    if waiting > guc::cutover_max_rows() {
        return Err(SplitError::Aborted(aborted::because(&format!("{waiting} changed rows to be applied"))));
    }
    let mut outcome = apply_announced(engine, before, &now, differences, &entries)?;
    if !outcome.progress.is_copied() {
        return Err(SplitError::Retry("the copy, which has to start again".into()));
    }
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, .. } = &mut *engine;
    let beside = behind::questions(plan, sessions, tables, asked, &now.snapshot)?;
    let answers = commit::commit_and_ask(engine, &mut outcome, &now, &beside)
        .map_err(|error| behind::renamed(error, asked))?;
    Ok((outcome, behind::read(&engine.tenure.plan, &engine.sessions, asked, answers)?))
}

/// Copies the window while the source counts the step, which must be on its disk before the target commits it.
fn apply_announced(
    engine: &mut Engine,
    before: CopyProgress,
    now: &Observation,
    differences: Differences,
    entries: &[WindowEntries],
) -> Result<StepOutcome> {
    // From this commit on a decision may exist that this server might forget.
    let deciding = transaction(instance::current);
    let Engine { tenure, sessions, queues, .. } = &mut *engine;
    commit::send_announcement(tenure, sessions, queues, before.steps, Some(&deciding))?;
    engine.mode = StepMode::Last { most_bytes: guc::cutover_max_bytes() };
    let applied = step::apply(engine, before, now, differences, entries);
    engine.mode = StepMode::Follow;
    let announced = commit::take_announcement(&mut engine.sessions, &mut engine.queues);
    let outcome = applied?;
    announced?;
    Ok(outcome)
}

/// Runs step 5 without waiting for any session on the master past the deadline. A commit that waits for a synchronous
/// standby is made already: the cutover continues without the standby.
fn decide_by(deadline: Instant, tenure: &Tenure, last_event_id: i64) -> Result<(i64, Standby)> {
    on_master::by(deadline, || {
        let version = write_decision(&tenure.plan, tenure.generation, last_event_id, None)?;
        if Instant::now() < deadline {
            Ok(version)
        } else {
            Err(SplitError::Aborted(aborted::because("locks on the master")))
        }
    })
}

/// Runs step 5: one transaction on the master decides. A version is given if the shards know of a decision that the
/// master has lost: it is made again.
pub fn decide(plan: &Plan, generation: i64, last_event_id: i64, version: Option<i64>) -> Result<i64> {
    try_transaction(|| {
        let version = write_decision(plan, generation, last_event_id, version)?;
        // The shards know it.
        standby::commit_alone();
        Ok(version)
    })
}

fn write_decision(plan: &Plan, generation: i64, last_event_id: i64, version: Option<i64>) -> Result<i64> {
    let state = row::lock(plan.id)?;
    if state.generation != generation {
        return Err(SplitError::Superseded);
    }
    let is_known = version.is_some();
    if is_known {
        record::catch_up_phases(plan.id, state.phase)?;
    } else if !phases::is_before_decision(state.phase) {
        return Err(SplitError::Superseded);
    } else if !is_asked_for_now(&state) {
        // Requests of the operator count up to this transaction.
        return Err(SplitError::Retry("the cutover to be requested again".into()));
    }
    // The plan's row is locked before the keyspace, in the same order as by a session that requests a cutover.
    reverse_preconditions::end(plan, is_known)?;
    let reason = format!("split {}", plan.id);
    let target = &plan.target.shard_key;
    let version = change::move_keys(&plan.keyspace, &plan.entries, target, plan.id, &reason, version)?;
    split_progress::decided(plan.id, last_event_id);
    record::decided(plan.id, version)?;
    Ok(version)
}

/// 6. Makes the source refuse its clients for good; writers that waited for the lock read this now. It is retried for
///    ever.
pub fn move_source(tenure: &Tenure, control: &mut Connection, version: i64) -> Result<()> {
    let (id, generation) = (tenure.plan.id, tenure.generation);
    let earlier = EarlierDecisions::before(&tenure.plan, version);
    let decided = Version::Is(Decided::of(&tenure.plan, version, &earlier));
    epoch::change(control, id, generation, &side::MOVE, decided)?;
    Ok(())
}

/// Does this in the session whose lock writers wait for, if it still has the lock: they read the new state once that
/// commit releases them.
fn move_and_release(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    fence: &mut Fence<'_>,
    version: i64,
) -> Result<()> {
    let plan = &tenure.plan;
    let earlier = EarlierDecisions::before(plan, version);
    let decided = Version::Is(Decided::of(plan, version, &earlier));
    if fence::release_with(fence, &mut sessions.reader, plan, tenure.generation, &side::MOVE, decided) {
        return Ok(());
    }
    move_source(tenure, &mut sessions.control, version)?;
    let _ = fence::release(fence);
    Ok(())
}

/// Records that the source was told: finish may begin. If another session blocks this record, that session is
/// reported.
pub fn record_moved(plan: &Plan, fenced: Option<Duration>) {
    let recorded = with_lock_timeout(|| {
        write_moved(plan, fenced);
        Ok::<_, SplitError>(())
    });
    if recorded.is_none() {
        let _status = wait::status_scope();
        let who = transaction(on_master::holders);
        wait::report(&format!("a lock on the master, both shards have been told: {who}"));
        transaction(|| write_moved(plan, fenced));
    }
}

fn write_moved(plan: &Plan, fenced: Option<Duration>) {
    standby::commit_alone();
    old_guards::forget(plan);
    split_state::cutover::step(plan.id, CutoverStep::Moved);
    if let Some(fenced) = fenced {
        split_progress::fenced(plan.id, fenced);
    }
}
