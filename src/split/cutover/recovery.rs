//! Recovery after a crash: what master, source and target record decides how the split continues. By then no session
//! of an earlier worker is left, and the generation is this worker's.

use super::{decision, fence};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::side::{self, Installed, SideState};
use crate::agent::state::{consumed, progress};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_progress;
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{self, CutoverRequest, CutoverStep};
use crate::error::SqlState;
use crate::guc;
use crate::remote::Connection;
use crate::routing::change;
use crate::server::txn::{transaction, try_transaction};
use crate::server::{instance, standby, wait};
use crate::split::copy::step;
use crate::split::cutover::fence::Fence;
use crate::split::cutover::{self, ended, side_state_check, source};
use crate::split::engine::Engine;
use crate::split::engine::sessions::EngineSessions;
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use crate::split::{phases, record, sequences};
use std::time::Instant;

/// Undoes what an interrupted cutover left before its decision.
pub fn settle(tenure: &Tenure, sessions: &mut EngineSessions, state: &SplitState) -> Result<()> {
    if phases::is_decided(state.phase) {
        return Ok(());
    }
    let id = tenure.plan.id;
    if let Some(version) = decision::lost(&tenure.plan, sessions)? {
        return adopt(tenure, &mut sessions.target, version);
    }
    let source = side::state(&mut sessions.control, id, Side::Source)?;
    if source == Some(SideState::Fenced) || state.cutover_step != CutoverStep::None {
        // The target is closed, so no client has written there: going back is safe.
        source::reopen(&mut sessions.control, id, tenure.generation)?;
    }
    reopen_routes(&tenure.plan)
}

/// The result of undoing a cutover that did not decide on this master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reverted {
    /// The source takes writes again, and the routes lead to it.
    Done,
    /// A decision may exist that this master has forgotten: only the target can tell.
    AskTarget,
}

/// Undoes a cutover with the source and the master alone, before its decision: waiting for a target would block the
/// writers of a healthy source.
///
/// Invariant: the source is opened only if no decision can exist. The target opens only after one, and none is made
/// before the source has noted which run of the master may make it (`deciding`). If it has noted nothing, there is
/// none, whatever has happened to the master since. If it has noted this very run, the plan, which this run has never
/// lost, shows that there is none. Another run may have been restored to a time before its decision.
/// An operator who declares that the target is lost takes responsibility for that.
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

/// Undoes it on the source alone, for a worker that cannot take the plan over because a transaction holds its row on
/// the master: `seen` is the generation in that row.
///
/// A lock keeps two workers of one master apart, so there is none now that could decide. An earlier worker has left
/// its sessions on the source: they are ended first, so that nothing of it comes late. The generation stays: the next
/// one is only given out with the row.
pub fn let_writers_in(plan: &Plan, seen: i64, identity: &str, target_lost: bool) -> Result<()> {
    let Some(mut source) = source_of(plan, identity)? else { return Ok(()) };
    epoch::end_previous(&mut source, plan, Side::Source)?;
    match epoch::known_generation(&mut source, plan, Side::Source)? {
        Some(known) if known <= seen => {
            open_source(&mut source, plan, known, target_lost)?;
        }
        // This master was restored: it has to catch up first.
        Some(_) | None => {}
    }
    Ok(())
}

/// Opens a session on the source. Returns None if the source was restored to a time before the split, so that it has
/// no fence.
fn source_of(plan: &Plan, identity: &str) -> Result<Option<Connection>> {
    let mut source = epoch::open(plan, identity, Side::Source, "recovery")?;
    match side::installed(&mut source, plan, Side::Source)? {
        Installed::Ours => Ok(Some(source)),
        Installed::No => Ok(None),
        Installed::Foreign => Err(side::foreign(source.shard(), plan).into()),
    }
}

/// Opens the source if no decision can exist.
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

/// Directs the routes to the source again, if a cutover had disabled them.
pub fn reopen_routes(plan: &Plan) -> Result<()> {
    try_transaction(|| {
        // A master that forgets this undoes it once more.
        standby::commit_alone();
        let state = row::lock(plan.id)?;
        if phases::is_decided(state.phase) || state.cutover_step == CutoverStep::None {
            return Ok(());
        }
        change::revert(&plan.keyspace, &plan.entries, &plan.source.shard_key)?;
        if state.request != CutoverRequest::Rehearsal {
            split_progress::fenced_in_vain(plan.id);
        }
        split_state::cutover::step(plan.id, CutoverStep::None);
        split::event(plan.id, None, None, "the cutover was undone: the source accepts writes again");
        Ok(())
    })
}

fn adopt(tenure: &Tenure, target: &mut Connection, version: i64) -> Result<()> {
    let stored = progress::stored(target, &tenure.plan)?.unwrap_or_default();
    transaction(|| {
        standby::commit_alone();
        split::event(tenure.plan.id, None, None, "the shards know a decision that this master had lost")
    });
    cutover::decide(&tenure.plan, tenure.generation, stored.last_event_id, Some(version))?;
    Ok(())
}

/// Adopts a finish: a side does not know the split, and the source shows that it has left after its last row, so this
/// master, restored to an earlier time, has lost the decision and the finish. Returns false if that is not the case.
pub fn adopt_finished(tenure: &Tenure) -> Result<bool> {
    let plan = &tenure.plan;
    let mut source = epoch::open(plan, &tenure.identity, Side::Source, "recovery")?;
    let Some(version) = ended::version(&mut source, plan)? else { return Ok(false) };
    decision::require_possible(plan, version)?;
    cutover::decide(plan, tenure.generation, 0, Some(version))?;
    transaction(|| record::finish_was_lost(plan.id));
    Ok(true)
}

/// Adopts a finish for a master that knows the decision, with this version.
pub fn adopt_finish(plan: &Plan, version: i64, identity: &str) -> Result<bool> {
    let mut source = epoch::open(plan, identity, Side::Source, "recovery")?;
    let is_ended = ended::is_shown(&mut source, plan, version)?;
    if is_ended {
        transaction(|| record::finish_was_lost(plan.id));
    }
    Ok(is_ended)
}

/// Completes a decided cutover, as often as a shard forgets it. The source is fenced before the target opens, whatever
/// has happened to either since.
pub fn complete(engine: &mut Engine, version: i64) -> Result<()> {
    let id = engine.tenure.plan.id;
    if side::is_left(&mut engine.sessions.target, id)? {
        return take_up_finish(&engine.tenure.plan, &mut engine.sessions.control, version);
    }
    let is_open = side::state(&mut engine.sessions.target, id, Side::Target)? == Some(SideState::Open);
    match side::state(&mut engine.sessions.control, id, Side::Source)? {
        Some(SideState::Capture) => {
            fence_again(&engine.tenure, &mut engine.sessions, &engine.tables)?;
            reach(injection_points::RECOVERY_FENCED)?;
            if is_open {
                report_stray(&engine.tenure.plan, &mut engine.sessions, &engine.tables)?;
            }
        }
        Some(SideState::Fenced) if !is_open => {
            await_writers(&engine.tenure.plan, &mut engine.sessions, &engine.tables)?;
            reach(injection_points::RECOVERY_AWAITED)?;
        }
        _ => {}
    }
    if !is_open {
        require_frozen_rows(&engine.tenure.plan, &mut engine.sessions.control)?;
        let is_whole = !catch_up(engine)?;
        reach(injection_points::RECOVERY_CAUGHT_UP)?;
        raise_sequences(&engine.tenure.plan, &mut engine.sessions, &engine.tables, is_whole)?;
    }
    cutover::open::open_target(&engine.tenure, &mut engine.sessions.target, version)?;
    reach(injection_points::CUTOVER_OPENED)?;
    cutover::move_source(&engine.tenure, &mut engine.sessions.control, version)?;
    reach(injection_points::CUTOVER_MOVED)?;
    cutover::record_moved(&engine.tenure.plan, None);
    Ok(())
}

/// Continues a finish that has left the target already: this master was restored to an earlier time.
fn take_up_finish(plan: &Plan, control: &mut Connection, version: i64) -> Result<()> {
    if let Some(text) = side_state_check::difference(control, plan, Side::Source, SideState::Moved, version)?
    {
        return Err(side_state_check::source_forgot(plan, &text));
    }
    transaction(|| record::finish_was_lost(plan.id));
    Ok(())
}

/// Requires that neither finish nor a reverse split has begun to delete: from then on the source is no copy of what
/// the target has lost.
fn require_frozen_rows(plan: &Plan, control: &mut Connection) -> Result<()> {
    let id = plan.id;
    if !consumed::is_purging(control, id)? {
        return Ok(());
    }
    let (source, target) = (&plan.source.shard_key, &plan.target.shard_key);
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

/// Runs an ordinary step while clients write on neither side. It notices a target that has failed over since the last
/// window, or a source that has and took writes meanwhile, and copies again what is no longer valid. Returns whether
/// there was anything.
fn catch_up(engine: &mut Engine) -> Result<bool> {
    let _status = wait::status_scope();
    let mut was_set_back = false;
    engine.pace.throttle.switch_off();
    loop {
        let outcome = step::run(engine).map_err(|error| after_decision(error, engine.tenure.plan.id))?;
        if let Some(why) = &outcome.restarted {
            was_set_back = true;
            let text = format!("the copy starts again before the target opens: {why}");
            transaction(|| split::event(engine.tenure.plan.id, None, None, &text));
        }
        if outcome.is_empty() && outcome.progress.is_copied() {
            return Ok(was_set_back);
        }
        was_set_back |= !outcome.is_empty();
        wait::report(&format!(
            "rows to arrive on shard \"{}\" before it opens: {} copied",
            engine.tenure.plan.target.shard_key,
            outcome.progress.rows_copied()
        ));
    }
}

/// Raises the target's sequences once more; before the decision they were raised past all rows that have moved. If
/// both shards still have all of it, clients do not wait for a sequence again: a session that has drawn from it may
/// stay for long, and the source's own record may have become anything since.
fn raise_sequences(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    is_whole: bool,
) -> Result<()> {
    match sequences::raise(plan, sessions, tables, sequences::Ahead::Enough, Instant::now()).map(drop) {
        Err(error) if is_whole => {
            sequences::tell(plan.id, &error.to_string());
            // The error may have left a transaction open there.
            sessions.target.run("ROLLBACK")?;
            Ok(())
        }
        raised => raised,
    }
}

/// Adapts the hint of an error after the decision: the split cannot be rolled back any more.
fn after_decision(error: SplitError, id: i64) -> SplitError {
    match error {
        SplitError::Failed(failure) | SplitError::Reshaped(failure) => SplitError::Failed(failure.hint(format!(
            "The cutover of split {id} has decided, and nothing is deleted. Undo the change, or restore the shard to a time after the cutover. The worker checks again every second, and then opens the target."
        ))),
        other => other,
    }
}

/// Fences the source again. A source that lost its fence by a failover takes writes for keys that have moved, so this
/// comes first.
fn fence_again(tenure: &Tenure, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let mut session = fence::open(&tenure.plan, sessions)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    let fence = &mut Fence { session: &mut session, deadline };
    fence::take(&tenure.plan, sessions, tables, fence, None)?;
    cutover::close_fence(tenure, &mut sessions.control)?;
    fence::require_held(fence)?;
    fence::release(fence)?;
    let id = tenure.plan.id;
    transaction(|| split::event(id, None, None, "the source had lost its fence and was fenced again"));
    Ok(())
}

/// Waits for writers before the last steps. A source that was restored to an earlier time may be `fenced` by an
/// attempt whose fence was lost right before: a writer may have been admitted then, for example a prepared
/// transaction.
fn await_writers(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let mut session = fence::open(plan, sessions)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    let fence = &mut Fence { session: &mut session, deadline };
    fence::take(plan, sessions, tables, fence, None)?;
    fence::release(fence)
}

/// Reports changes that the source took without its fence. The target takes writes already, so they cannot be copied;
/// finish deletes nothing before the operator has acted.
fn report_stray(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let stray = source::stray_changes(plan, sessions, tables)?;
    let text =
        format!("{stray} changes were made on the source after the last window, while it had no fence");
    transaction(|| split::event(plan.id, None, None, &text));
    Ok(())
}
