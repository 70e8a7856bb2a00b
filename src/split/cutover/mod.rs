//! The cutover: the one moment in which writers of the moving keys wait. One commit
//! on the master decides; everything before it can be set back, everything after it
//! only goes forward.
//!
//! No wait before the decision outlasts the deadline, whatever becomes of a server or of
//! the way there: each session ends its waits at it, and the fence ends by itself.

mod behind;
pub mod decision;
pub mod ended;
pub mod fence;
pub mod old_guards;
pub mod on_master;
pub mod open;
pub mod recovery;
pub mod settled;
pub mod source;
pub mod told;
pub mod watch;

use super::copy::commit;
use super::copy::compare::{self, Differences};
use super::copy::foreign_keys;
use super::copy::leaves;
use super::copy::outcome::StepOutcome;
use super::copy::step;
use super::copy::window::{self, WindowEntries};
use super::engine::Engine;
use super::injection_points::{self, reach};
use super::sequences::{self, Ahead};
use super::{owners, record, since_check, there, unregistered};
use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Observation;
use crate::agent::state::decision::{Decided, EarlierDecisions};
use crate::agent::state::progress::CopyProgress;
use crate::agent::state::side::{self, Version};
use crate::agent::state::tenure;
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverRequest, CutoverStep, Goal};
use crate::catalog::{reference, split_progress, split_state};
use crate::error::Failure;
use crate::guc;
use crate::remote::{Connection, number};
use crate::routing::change;
use crate::server::standby::{self, Standby};
use crate::server::txn::{soon, transaction, try_transaction};
use crate::server::{instance, wait};
use crate::split::aborted;
use crate::split::engine::holders;
use crate::split::engine::locks;
use crate::split::phases;
use crate::words::counted;
use behind::{FenceAnswers, FenceQuestions};
use std::time::{Duration, Instant};

/// Beyond the deadline, for a question that is under way.
const TO_ASK: Duration = Duration::from_millis(500);

/// How a cutover is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    Decide,
    /// Right before its decision it is set back.
    Rehearse,
}

/// What a rehearsal has found.
pub struct Rehearsed {
    /// When the first writer had to wait.
    pub began: Instant,
    /// Whom the fence waited for before it was taken.
    pub waited_for: Option<String>,
}

/// Carries out steps 1 to 6, with so long for those up to the decision. One that is given up lets
/// the source's writers in at once, in the session that has kept them out: what is then written
/// down on the master may have to wait there.
pub fn run(engine: &mut Engine, aim: Aim, limit: Duration) -> Result<Option<Rehearsed>> {
    let mut is = FencedSource::Open;
    // Kept until the source is open again: writers that wait for it are let in, not refused.
    let mut held = None;
    let outcome = steps(engine, &mut is, &mut held, aim, limit);
    if is == FencedSource::Fenced && !matches!(outcome, Ok(None)) {
        engine.set_deadline(Some(Instant::now() + TO_ASK));
        // If it does not succeed, recovery does it.
        let _ = source::reopen(&mut engine.control, engine.plan.id, engine.generation);
        drop(held);
        // Else it would count as changes that the target lacks, until the next ones come.
        if let Some(owed) = engine.owed.take() {
            let _ = engine.control_transaction(&owed);
        }
        reach(injection_points::CUTOVER_REOPENED)?;
    }
    outcome
}

const ALONE: &str = "the synchronous standby of the master has not confirmed the decision in time; if it were promoted without it, it would adopt it from the shards";

/// What this cutover has made of its source.
#[derive(PartialEq, Eq)]
enum FencedSource {
    Open,
    /// Or about to be.
    Fenced,
    /// Decided: it is not opened any more.
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
    let raised_by = Instant::now() + guc::cutover_timeout();
    let sequences = sequences::raise(engine, Ahead::Plenty, raised_by).map_err(aborted::deadline_passed)?;
    source::prepare_unseen(engine)?;
    let mut asked =
        FenceQuestions { sequences, guards: old_guards::GuardQuestions::prepare(&mut engine.target)? };
    let fence = held.insert(fence::open(engine)?);

    let deadline = Instant::now() + limit;
    // Who holds the cutover up is still to be asked at the deadline.
    fence.set_deadline(Some(deadline + TO_ASK));
    engine.set_deadline(Some(deadline + TO_ASK));
    disable_routes(engine, aim, deadline)?;
    let began = Instant::now();
    reach(injection_points::CUTOVER_DISABLED)?;
    let tables = locks::source_for_cutover(engine);
    let waited_for = fence::take(engine, fence, deadline, Some(&tables)).map_err(aborted::deadline_passed)?;
    reach(injection_points::CUTOVER_LOCKED)?;
    in_time(deadline)?;
    *is = FencedSource::Fenced;
    close_fence(engine)?;
    reach(injection_points::CUTOVER_FENCED)?;
    in_time(deadline)?;
    let (outcome, found) = apply_last_window(engine, fence, &asked, deadline)?;
    reach(injection_points::CUTOVER_APPLIED)?;
    in_time(deadline)?;
    let (positions, heard) = ([&*found.source, &*found.target], found.heard);
    asked.sequences.raise(engine, positions, deadline).map_err(aborted::deadline_passed)?;
    reach(injection_points::CUTOVER_SEQUENCES)?;
    if Instant::now() > deadline {
        return Err(SplitError::Aborted(aborted::because("the last changes to be applied")));
    }
    require_both(engine, heard)?;
    if aim == Aim::Rehearse {
        return Ok(Some(Rehearsed { began, waited_for }));
    }
    let (version, standby) =
        decide_by(deadline, &engine.plan, engine.generation, outcome.progress.last_event_id)?;
    *is = FencedSource::Left;
    engine.set_deadline(None);
    reach(injection_points::CUTOVER_DECIDED)?;
    follow_sequences(engine, &mut asked)?;
    open::open_and_consume(engine, version, found)?;
    reach(injection_points::CUTOVER_OPENED)?;
    move_and_release(engine, fence, version)?;
    reach(injection_points::CUTOVER_MOVED)?;
    *held = None;
    record_moved(&engine.plan, Some(began.elapsed()));
    tell_waited_for(engine.plan.id, waited_for.as_deref());
    transaction(|| {
        standby::commit_alone();
        split_progress::last_event(engine.plan.id, outcome.progress.last_event_at);
        if standby == Standby::Unknown {
            split::event(engine.plan.id, None, None, ALONE);
        }
    });
    Ok(None)
}

/// No lock keeps anybody from drawing on the source, up to here.
fn follow_sequences(engine: &mut Engine, asked: &mut FenceQuestions) -> Result<()> {
    if let Some(reason) = asked.sequences.follow(engine)? {
        sequences::tell(engine.plan.id, &reason);
    }
    Ok(())
}

/// A worker that its machine has held up blames no shard that is well.
fn in_time(deadline: Instant) -> Result<()> {
    if Instant::now() <= deadline {
        Ok(())
    } else {
        Err(SplitError::Aborted(aborted::because("its own worker, which was delayed past the deadline")))
    }
}

/// 0. Nothing is tried while it could not succeed: the lag is small and nobody has
///    held the capture lock for long. Ordinary steps, for which nobody waits; they have as long
///    as the rest.
pub fn be_ready(engine: &mut Engine) -> Result<()> {
    reach(injection_points::CUTOVER_BEGIN)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    let _said = wait::said();
    unregistered::require_none_before_cutover(&mut engine.control, &engine.plan)?;
    since_check::require_as_checked(engine)?;
    let asked = transaction(reference::now);
    let mut waited_for = None;
    loop {
        owners::look_again_soon();
        let outcome = match step::run(engine) {
            Err(SplitError::Remote(error)) if error.is_lock_timeout() => {
                let reason = fence::table_holders(engine).unwrap_or_else(|_| error.to_string());
                return Err(SplitError::Aborted(aborted::because(&reason)));
            }
            other => other?,
        };
        if let Some(why) = &outcome.restarted {
            transaction(|| split::event_again(engine.plan.id, &format!("the copy starts again: {why}")));
        }
        let reason = if !outcome.progress.is_copied() {
            // The backfill does that, and faster than attempts at a cutover.
            return Err(SplitError::Aborted(aborted::because(aborted::COPIES_AGAIN)));
        } else if outcome.changes > guc::cutover_max_rows() {
            Some(format!("the lag to fall: {} changed rows in the last window", outcome.changes))
        } else if outcome.lag > guc::max_lag() {
            Some(format!("the lag to fall: the last window took {} ms", outcome.lag.as_millis()))
        } else if let Some(reason) = asked.and_then(|asked| {
            transaction(|| reference::holds_up(&engine.plan.keyspace, &engine.plan.target.shard_key, asked))
        }) {
            // What clients have seen on the source by now they see on the target.
            Some(reason)
        } else {
            holders::holders(engine)?.into_iter().find(|h| h.old).map(|h| {
                format!("a writer's transaction on shard \"{}\": {}", engine.plan.source.shard_key, h.text)
            })
        };
        let Some(reason) = reason else {
            tell_waited_for(engine.plan.id, waited_for.as_deref());
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(SplitError::Aborted(aborted::because(&reason)));
        }
        wait::report(&reason);
        wait::sleep(Duration::from_millis(100));
        waited_for = Some(reason);
    }
}

/// For the history, and the account of shard_split_run().
fn tell_waited_for(id: i64, who: Option<&str>) {
    if let Some(who) = who {
        transaction(|| {
            standby::commit_alone();
            split_progress::fence_waited_for(id, who);
            split::event(id, None, None, &format!("the cutover waited for {who}"));
        });
    }
}

/// An answer that counts as the last sign of life.
const LATELY: Duration = Duration::from_millis(20);

/// The target, which nobody can do without after the decision, has answered just now, and the
/// source, in the session that has fenced it, too: it was not restarted from an older disk
/// since. A worker that was held up for a while asks both once more.
fn require_both(engine: &mut Engine, heard: Instant) -> Result<()> {
    if heard.elapsed() > LATELY {
        engine.target.send("SELECT 1")?;
        engine.control.run("SELECT 1")?;
        engine.target.finish()?;
    }
    Ok(())
}

/// 1. Routes for writing wait; reads go to the source. In place, no version. Where the master's
///    synchronous standby is away, it shows here, before anybody is kept out.
fn disable_routes(engine: &Engine, aim: Aim, deadline: Instant) -> Result<()> {
    let ((), standby) = on_master::by(deadline, || {
        let state = row::lock(engine.plan.id)?;
        if state.generation != engine.generation {
            return Err(SplitError::Superseded);
        }
        // The operator's word counts up to here.
        let is_asked_for = match aim {
            Aim::Decide => is_asked_for_now(&state),
            Aim::Rehearse => state.request == CutoverRequest::Rehearsal && state.goal != Goal::RolledBack,
        };
        if !phases::is_before_decision(state.phase) || !is_asked_for {
            return Err(SplitError::Retry("the cutover to be requested again".into()));
        }
        change::set_moving(&engine.plan.keyspace, &engine.plan.entries, &engine.plan.target.shard_key)
            .map_err(Failure::from)?;
        // Too late it keeps nobody waiting.
        if Instant::now() > deadline {
            let routes = counted(engine.plan.entries.len(), "route", "routes");
            return Err(SplitError::Aborted(aborted::because(&format!(
                "the master, which had {routes} to disable"
            ))));
        }
        // Since when writers wait.
        split_state::cutover::step(engine.plan.id, CutoverStep::Disabled);
        Ok(())
    })?;
    match standby {
        Standby::HasIt => Ok(()),
        Standby::Unknown => {
            Err(SplitError::Aborted(aborted::because("the synchronous standby of the master")))
        }
    }
}

/// Asked for anew, it may have a window that has not begun.
fn is_asked_for_now(state: &SplitState) -> bool {
    phases::asks_for_cutover(state.goal) && state.request == CutoverRequest::Now
}

/// 3. The state that writers read once they have the lock. If the fence still holds, which is to be asked from
///    now on, no writer has read the one before.
pub fn close_fence(engine: &mut Engine) -> Result<()> {
    let (id, generation) = (engine.plan.id, engine.generation);
    let control = &mut engine.control;
    if !tenure::change(control, id, generation, &side::FENCE, Version::None)? {
        return Err(SplitError::Retry("the state of the source to be cleared up".into()));
    }
    Ok(())
}

/// 4. The reading session's first query now: S_f sees every write that there will
///    ever be on the source, if the fence holds.
fn apply_last_window(
    engine: &mut Engine,
    fence: &mut Connection,
    asked: &FenceQuestions,
    deadline: Instant,
) -> Result<(StepOutcome, FenceAnswers)> {
    let locked = engine.parents.clone();
    fence::ask_whether_held(fence, deadline)?;
    step::send_begin_target(engine)?;
    let now = step::observe_source(engine)?;
    fence::take_whether_held(fence)?;
    if engine.parents != locked {
        return Err(SplitError::Retry("the partitions of the source, which have just changed".into()));
    }
    let (mut before, there) = step::finish_begin_target(engine, &now)?;
    let lost = leaves::admit(engine, &mut before, &there)?;
    let differences = compare::compare(engine, &before, &now)?;
    if differences.restart.is_some()
        || !(lost.is_empty() && differences.reset.is_empty())
        || !(differences.grown.is_empty() && differences.uncaptured.is_empty())
    {
        return Err(SplitError::Retry("the copy, which has to start again".into()));
    }
    let entries = window::count(engine, &before)?;
    let waiting = number::sum(entries.iter().map(|entry| entry.rows));
    if Instant::now() > deadline {
        return Err(SplitError::Aborted(aborted::because("writers for most of shardmaster.cutover_timeout")));
    }
    if waiting > guc::cutover_max_rows() {
        return Err(SplitError::Aborted(aborted::because(&format!("{waiting} changed rows to be applied"))));
    }
    let mut outcome = apply_announced(engine, before, &now, differences, &entries)?;
    if !outcome.progress.is_copied() {
        return Err(SplitError::Retry("the copy, which has to start again".into()));
    }
    let beside = behind::questions(engine, asked, &now.snapshot)?;
    let answers = commit::commit_and_ask(engine, &mut outcome, &now, &beside)
        .map_err(|error| behind::renamed(error, asked))?;
    Ok((outcome, behind::read(engine, asked, answers)?))
}

/// The window comes over while the source counts the step, which is to be on its disk before the target commits it.
fn apply_announced(
    engine: &mut Engine,
    before: CopyProgress,
    now: &Observation,
    differences: Differences,
    entries: &[WindowEntries],
) -> Result<StepOutcome> {
    // From this commit on a decision may exist that this server might forget.
    engine.deciding = Some(transaction(instance::current));
    engine.window_limit = Some(guc::cutover_max_bytes());
    commit::send_announcement(engine, before.steps)?;
    let applied = step::apply(engine, before, now, differences, entries);
    let announced = commit::take_announcement(engine);
    engine.window_limit = None;
    let outcome = applied?;
    announced?;
    Ok(outcome)
}

/// Step 5, which waits for nobody on the master past the deadline. A commit that waits for a
/// synchronous standby stands already: it goes on without.
fn decide_by(deadline: Instant, plan: &Plan, generation: i64, last_event_id: i64) -> Result<(i64, Standby)> {
    on_master::by(deadline, || {
        let version = write_decision(plan, generation, last_event_id, None)?;
        if Instant::now() < deadline {
            Ok(version)
        } else {
            Err(SplitError::Aborted(aborted::because("locks on the master")))
        }
    })
}

/// Step 5: one transaction on the master decides. A version is given when the shards
/// know of a decision that the master has lost: it is made again.
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
        // The operator's word counts up to this transaction.
        return Err(SplitError::Retry("the cutover to be requested again".into()));
    }
    // Its row before the keyspace, as whoever asks for it takes them.
    there::end(plan, is_known)?;
    let reason = format!("split {}", plan.id);
    let target = &plan.target.shard_key;
    let version = change::move_keys(&plan.keyspace, &plan.entries, target, plan.id, &reason, version)?;
    split_progress::decided(plan.id, last_event_id);
    record::decided(plan.id, version)?;
    Ok(version)
}

/// 6. The source sends its clients away; writers that waited for the lock read it
///    now. Retried for ever.
pub fn move_source(engine: &mut Engine, version: i64) -> Result<()> {
    let (id, generation) = (engine.plan.id, engine.generation);
    let earlier = EarlierDecisions::before(&engine.plan, version);
    let decided = Version::Is(Decided::of(&engine.plan, version, &earlier));
    tenure::change(&mut engine.control, id, generation, &side::MOVE, decided)?;
    Ok(())
}

/// The same in the session whose lock writers wait for, where it still has it: they read it once that commit lets them go.
fn move_and_release(engine: &mut Engine, fence: &mut Connection, version: i64) -> Result<()> {
    let earlier = EarlierDecisions::before(&engine.plan, version);
    let decided = Version::Is(Decided::of(&engine.plan, version, &earlier));
    let (reader, change) = (&mut engine.reader, (&side::MOVE, decided));
    if fence::release_with(fence, reader, &engine.plan, engine.generation, change) {
        return Ok(());
    }
    move_source(engine, version)?;
    let _ = fence::release(fence);
    Ok(())
}

/// The master knows that the source has been told: finish may begin. Who keeps it from being
/// written down is told.
pub fn record_moved(plan: &Plan, fenced: Option<Duration>) {
    let recorded = soon(|| {
        write_moved(plan, fenced);
        Ok::<_, SplitError>(())
    });
    if recorded.is_none() {
        let _said = wait::said();
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
