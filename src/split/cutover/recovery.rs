//! After a crash: what master, source and target say decides how it goes on. By
//! then no session of an earlier worker is left, and the generation is ours.

use super::{decision, fence};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::{self, Installed, SideState};
use crate::agent::state::tenure::{self, Tenure};
use crate::agent::state::{consumed, progress};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverRequest, CutoverStep};
use crate::catalog::{split_progress, split_state};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::Connection;
use crate::routing::change;
use crate::server::txn::{transaction, try_transaction};
use crate::server::{instance, standby, wait};
use crate::split::copy::step;
use crate::split::cutover::ended;
use crate::split::cutover::{self, source, told};
use crate::split::engine::Engine;
use crate::split::injection_points::{self, reach};
use crate::split::phases;
use crate::split::{record, sequences};
use std::time::Instant;

/// Settles what an interrupted cutover left before its decision.
pub fn settle(engine: &mut Engine, state: &SplitState) -> Result<()> {
    if phases::is_decided(state.phase) {
        return Ok(());
    }
    let id = engine.plan.id;
    if let Some(version) = decision::lost(engine)? {
        return adopt(engine, version);
    }
    let source = side::state(&mut engine.control, id, Side::Source)?;
    if source == Some(SideState::Fenced) || state.cutover_step != CutoverStep::None {
        // The target is closed, so no client has written there: going back is safe.
        source::reopen(&mut engine.control, id, engine.generation)?;
    }
    reopen_routes(&engine.plan)
}

/// What is known of a cutover that did not decide on this master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reverted {
    /// The source takes writes again, the routes lead to it.
    Done,
    /// A decision may exist that this master has forgotten: only the target can say.
    AskTarget,
}

/// Sets a cutover back with the source and the master alone, before its decision: whoever
/// waits for a target keeps the writers of a healthy source out.
///
/// Invariant: the source is opened only where no decision can exist. The target opens
/// only after one, and none is made before the source has noted which run of the master
/// may make it (`deciding`). Where it has noted nothing there is none, whatever has become
/// of the master since. Where it has noted this very run, the plan, which this run has
/// never lost, says that there is none. Another run may have been restored to a time
/// before its decision.
/// An operator who says that the target is lost takes that upon himself.
pub fn revert(tenure: &Tenure, target_lost: bool) -> Result<Reverted> {
    let plan = &tenure.plan;
    let Some(mut source) = source_of(plan, &tenure.identity)? else {
        return reopen_routes(plan).map(|()| Reverted::Done);
    };
    tenure.take_over(&mut source, Side::Source)?;
    if open_source(&mut source, plan, tenure.generation, target_lost)? == Reverted::Done {
        reopen_routes(plan)?;
        return Ok(Reverted::Done);
    }
    Ok(Reverted::AskTarget)
}

/// The same on the source alone, for a worker that cannot take the plan over since somebody's
/// transaction holds its row on the master: `seen` is the generation that stands there.
///
/// Two workers of one master are kept apart by their lock, so there is none now that could
/// decide. What an earlier one has left on the source are its sessions: they are ended first,
/// so that nothing of it comes late. The generation stays: the next one is only given out
/// with the row.
pub fn let_writers_in(plan: &Plan, seen: i64, identity: &str, target_lost: bool) -> Result<()> {
    let Some(mut source) = source_of(plan, identity)? else { return Ok(()) };
    tenure::end_previous(&mut source, plan, Side::Source)?;
    match tenure::known_generation(&mut source, plan, Side::Source)? {
        Some(known) if known <= seen => {
            open_source(&mut source, plan, known, target_lost)?;
        }
        // This master was restored: it has to catch up first.
        Some(_) | None => {}
    }
    Ok(())
}

/// A session on the source. None: restored to a time before the split, it has no fence.
fn source_of(plan: &Plan, identity: &str) -> Result<Option<Connection>> {
    let mut source = tenure::open(plan, identity, Side::Source, "recovery")?;
    match side::installed(&mut source, plan, Side::Source)? {
        Installed::Ours => Ok(Some(source)),
        Installed::No => Ok(None),
        Installed::Foreign => Err(side::foreign(source.shard(), plan).into()),
    }
}

/// Opens it where no decision can exist.
fn open_source(source: &mut Connection, plan: &Plan, generation: i64, target_lost: bool) -> Result<Reverted> {
    let state = side::state(source, plan.id, Side::Source)?;
    let deciding = consumed::deciding(source, plan.id)?;
    let may_be_forgotten = deciding.is_some_and(|run| run != transaction(instance::current));
    if state == Some(SideState::Moved) || may_be_forgotten && !target_lost {
        return Ok(Reverted::AskTarget);
    }
    source::reopen(source, plan.id, generation)?;
    Ok(Reverted::Done)
}

/// The routes lead to the source again, if a cutover had disabled them.
pub fn reopen_routes(plan: &Plan) -> Result<()> {
    try_transaction(|| {
        // A master that has forgotten it sets back once more.
        standby::commit_alone();
        let state = row::lock(plan.id)?;
        if phases::is_decided(state.phase) || state.cutover_step == CutoverStep::None {
            return Ok(());
        }
        change::revert(&plan.keyspace, &plan.entries, &plan.source.shard_key).map_err(Failure::from)?;
        if state.request != CutoverRequest::Rehearsal {
            split_progress::fenced_in_vain(plan.id);
        }
        split_state::cutover::step(plan.id, CutoverStep::None);
        split::event(plan.id, None, None, "the cutover was undone: the source accepts writes again");
        Ok(())
    })
}

fn adopt(engine: &mut Engine, version: i64) -> Result<()> {
    let stored = progress::stored(&mut engine.target, &engine.plan)?.unwrap_or_default();
    transaction(|| {
        standby::commit_alone();
        split::event(engine.plan.id, None, None, "the shards know a decision that this master had lost")
    });
    cutover::decide(&engine.plan, engine.generation, stored.last_event_id, Some(version))?;
    Ok(())
}

/// A side does not know the split, and the source shows that it has left after its last row: this master, restored
/// from a time before, has lost the decision and the finish. False: it is not so.
pub fn adopt_finished(tenure: &Tenure) -> Result<bool> {
    let plan = &tenure.plan;
    let mut source = tenure::open(plan, &tenure.identity, Side::Source, "recovery")?;
    let Some(version) = ended::version(&mut source, plan)? else { return Ok(false) };
    decision::require_possible(plan, version)?;
    cutover::decide(plan, tenure.generation, 0, Some(version))?;
    transaction(|| record::finish_was_lost(plan.id));
    Ok(true)
}

/// The same for a master that knows the decision, with this version.
pub fn adopt_finish(plan: &Plan, version: i64, identity: &str) -> Result<bool> {
    let mut source = tenure::open(plan, identity, Side::Source, "recovery")?;
    let is_ended = ended::is_shown(&mut source, plan, version)?;
    if is_ended {
        transaction(|| record::finish_was_lost(plan.id));
    }
    Ok(is_ended)
}

/// Carries a decided cutover to its end, as often as a shard forgets it. The source is
/// fenced before the target opens, whatever has happened to either since.
pub fn complete(engine: &mut Engine, version: i64) -> Result<()> {
    let id = engine.plan.id;
    if side::is_left(&mut engine.target, id)? {
        return take_up_finish(engine, version);
    }
    let is_open = side::state(&mut engine.target, id, Side::Target)? == Some(SideState::Open);
    match side::state(&mut engine.control, id, Side::Source)? {
        Some(SideState::Capture) => {
            fence_again(engine)?;
            reach(injection_points::RECOVERY_FENCED)?;
            if is_open {
                report_stray(engine)?;
            }
        }
        Some(SideState::Fenced) if !is_open => {
            await_writers(engine)?;
            reach(injection_points::RECOVERY_AWAITED)?;
        }
        _ => {}
    }
    if !is_open {
        require_frozen_rows(engine)?;
        let is_whole = !catch_up(engine)?;
        reach(injection_points::RECOVERY_CAUGHT_UP)?;
        raise_sequences(engine, is_whole)?;
    }
    cutover::open::open_target(engine, version)?;
    reach(injection_points::CUTOVER_OPENED)?;
    cutover::move_source(engine, version)?;
    reach(injection_points::CUTOVER_MOVED)?;
    cutover::record_moved(&engine.plan, None);
    Ok(())
}

/// A finish has left the target already: this master was restored to a time before, and takes
/// it up where it was.
fn take_up_finish(engine: &mut Engine, version: i64) -> Result<()> {
    let Engine { control, plan, .. } = engine;
    if let Some(text) = told::difference(control, plan, Side::Source, (SideState::Moved, version))? {
        return Err(told::source_forgot(plan, &text));
    }
    transaction(|| record::finish_was_lost(plan.id));
    Ok(())
}

/// Once finish or a reverse split has begun to delete, the source is no copy of what the target has lost.
fn require_frozen_rows(engine: &mut Engine) -> Result<()> {
    let id = engine.plan.id;
    if !consumed::is_purging(&mut engine.control, id)? {
        return Ok(());
    }
    let (source, target) = (&engine.plan.source.shard_key, &engine.plan.target.shard_key);
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "shard \"{target}\" was restored to a time before the cutover of split {id}, whose rows have begun to be deleted on shard \"{source}\""
        ),
        format!(
            "Nothing more is deleted. Restore shard \"{target}\" to a time after the cutover, then resume the split."
        ),
    ))
}

/// Nobody writes on either side. A target that has failed over since the last window, or a
/// source that has and took writes meanwhile, is noticed by an ordinary step, which copies
/// again what does not count any more. Whether anything did not.
fn catch_up(engine: &mut Engine) -> Result<bool> {
    let _said = wait::said();
    let mut was_set_back = false;
    engine.throttle.switch_off();
    loop {
        let outcome = step::run(engine).map_err(|error| after_decision(error, engine.plan.id))?;
        if let Some(why) = &outcome.restarted {
            was_set_back = true;
            let text = format!("the copy starts again before the target opens: {why}");
            transaction(|| split::event(engine.plan.id, None, None, &text));
        }
        if outcome.is_empty() && outcome.progress.is_copied() {
            return Ok(was_set_back);
        }
        was_set_back |= !outcome.is_empty();
        wait::report(&format!(
            "rows to arrive on shard \"{}\" before it opens: {} copied",
            engine.plan.target.shard_key,
            outcome.progress.rows_copied()
        ));
    }
}

/// The decision came after the target's sequences had been raised past all rows that have
/// moved. Where both shards still have all of it, clients do not wait for a sequence once more:
/// who has drawn from it may stay for long, and what the source says of its own may have become
/// anything since.
fn raise_sequences(engine: &mut Engine, is_whole: bool) -> Result<()> {
    match sequences::raise(engine, sequences::Ahead::Enough, Instant::now()).map(drop) {
        Err(error) if is_whole => {
            sequences::tell(engine.plan.id, &error.to_string());
            // What has failed there may have been within a transaction.
            engine.target.run("ROLLBACK")?;
            Ok(())
        }
        raised => raised,
    }
}

/// What a step finds to be wrong cannot be rolled back any more.
fn after_decision(error: SplitError, id: i64) -> SplitError {
    match error {
        SplitError::Failed(failure) | SplitError::Reshaped(failure) => SplitError::Failed(failure.hint(format!(
            "The cutover of split {id} has decided, and nothing is deleted. Undo the change, or restore the shard to a time after the cutover. The worker checks again every second, and then opens the target."
        ))),
        other => other,
    }
}

/// A source that lost its fence (it failed over) takes writes for keys that have
/// moved: it is fenced at once.
fn fence_again(engine: &mut Engine) -> Result<()> {
    let mut session = fence::open(engine)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    fence::take(engine, &mut session, deadline, None)?;
    cutover::close_fence(engine)?;
    fence::require_held(&mut session, deadline)?;
    fence::release(&mut session)?;
    let id = engine.plan.id;
    transaction(|| split::event(id, None, None, "the source had lost its fence and was fenced again"));
    Ok(())
}

/// A source that was set back may say `fenced` of an attempt whose fence was lost right before:
/// who came in then, a prepared transaction perhaps, is waited for before the last steps.
fn await_writers(engine: &mut Engine) -> Result<()> {
    let mut session = fence::open(engine)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    fence::take(engine, &mut session, deadline, None)?;
    fence::release(&mut session)
}

/// The target takes writes already, so what the source took without its fence cannot be
/// brought over: it is told, and finish deletes nothing before the operator has seen it.
fn report_stray(engine: &mut Engine) -> Result<()> {
    let stray = source::stray_changes(engine)?;
    let text =
        format!("{stray} changes were made on the source after the last window, while it had no fence");
    transaction(|| split::event(engine.plan.id, None, None, &text));
    Ok(())
}
