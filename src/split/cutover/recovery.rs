//! After a crash: what master, source and target say decides how it goes on. By
//! then no session of an earlier worker is left, and the generation is ours.

use super::{decision, fence, sequences, watch};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Installed, Side};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{CutoverStep, Phase};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::routing::change;
use crate::server::txn::{transaction, try_transaction};
use crate::server::{standby, wait};
use crate::split::copy::progress::Progress;
use crate::split::copy::{counters, step};
use crate::split::end::{finish, redirect};
use crate::split::engine::{self, Engine};
use crate::split::points::{self, reach};
use crate::split::{cutover, record};
use std::time::Instant;

/// Settles what an interrupted cutover left before its decision.
pub fn settle(engine: &mut Engine, state: &split::State) -> Result<()> {
    if state.phase == Phase::Completed {
        return Ok(());
    }
    let id = engine.plan.id;
    if let Some(version) = decision::lost(engine)? {
        return adopt(engine, version);
    }
    let (source, _) = fence::state(&mut engine.control, id, Side::Source)?;
    if source == "fenced" || state.cutover_step != CutoverStep::None {
        // The target is closed, so no client has written there: going back is safe.
        reopen_source(&mut engine.control, id, engine.generation)?;
    }
    reopen_routes(&engine.plan)
}

/// What is known of a cutover that did not decide on this master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetBack {
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
pub fn set_back(plan: &Plan, generation: i64, identity: &str, target_lost: bool) -> Result<SetBack> {
    let Some(mut source) = source_of(plan, identity)? else {
        return reopen_routes(plan).map(|()| SetBack::Done);
    };
    session::take_over(&mut source, plan, Side::Source, generation)?;
    session::register(&mut source, plan, Side::Source)?;
    if open_source(&mut source, plan, generation, target_lost)? == SetBack::Done {
        reopen_routes(plan)?;
        return Ok(SetBack::Done);
    }
    Ok(SetBack::AskTarget)
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
    session::end_previous(&mut source, plan, Side::Source)?;
    match session::known_generation(&mut source, plan, Side::Source)? {
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
    let mut source = session::open_mover(plan, Side::Source, "recovery")?;
    session::check_identity(&mut source, identity)?;
    match session::installed(&mut source, plan, Side::Source)? {
        Installed::Ours => Ok(Some(source)),
        Installed::No => Ok(None),
        Installed::Foreign => Err(session::foreign(source.shard(), plan).into()),
    }
}

/// Opens it where no decision can exist.
fn open_source(source: &mut Connection, plan: &Plan, generation: i64, target_lost: bool) -> Result<SetBack> {
    let (state, _) = fence::state(source, plan.id, Side::Source)?;
    let deciding = source
        .run(&format!("SELECT deciding FROM shardmaster_agent.consumed WHERE split_id = {}", plan.id))?;
    let may_be_forgotten = deciding.scalar().is_some_and(|run| run != transaction(cutover::instance));
    if state == "moved" || may_be_forgotten && !target_lost {
        return Ok(SetBack::AskTarget);
    }
    reopen_source(source, plan.id, generation)?;
    Ok(SetBack::Done)
}

/// The source takes writes again, and its note of a decision goes in the same commit.
pub fn reopen_source(source: &mut Connection, split: i64, generation: i64) -> Result<()> {
    engine::begin_as(source, split, Side::Source, generation)?;
    fence::write_state(source, (split, Side::Source), &["fenced"], "capture", None)?;
    source.run(&format!(
        "UPDATE shardmaster_agent.consumed SET deciding = NULL WHERE split_id = {split} AND deciding IS NOT NULL; COMMIT"
    ))?;
    Ok(())
}

/// The routes lead to the source again, if a cutover had disabled them.
pub fn reopen_routes(plan: &Plan) -> Result<()> {
    try_transaction(|| {
        // A master that has forgotten it sets back once more.
        standby::commit_alone();
        let state = split::lock(plan.id)?;
        if state.phase == Phase::Completed || state.cutover_step == CutoverStep::None {
            return Ok(());
        }
        change::set_back(&plan.keyspace, &plan.entries, &plan.source.shard_key).map_err(Failure::from)?;
        cutover::set_step(plan.id, CutoverStep::None);
        split::event(plan.id, None, None, "the cutover was set back: the source takes writes again");
        Ok(())
    })
}

fn adopt(engine: &mut Engine, version: i64) -> Result<()> {
    let last_event_id = stored_progress(engine)?.last_event_id;
    transaction(|| {
        standby::commit_alone();
        split::event(engine.plan.id, None, None, "the shards know a decision that this master had lost")
    });
    cutover::decide(&engine.plan, engine.generation, last_event_id, Some(version))?;
    Ok(())
}

/// A side does not know the split, and the source redirects its keys: they are entered
/// after the last row has left the source, so this master, restored from a time before, has
/// lost the decision and the finish. False: it is not so.
pub fn adopt_finished(plan: &Plan, generation: i64, identity: &str) -> Result<bool> {
    let Some(version) = redirected_version(plan, identity)? else { return Ok(false) };
    decision::require_possible(plan, version)?;
    cutover::decide(plan, generation, 0, Some(version))?;
    transaction(|| record::finish_was_lost(plan.id));
    Ok(true)
}

/// The same for a master that knows the decision, with this version.
pub fn adopt_finish(plan: &Plan, version: i64, identity: &str) -> Result<bool> {
    let is_ended = redirected_version(plan, identity)? == Some(version);
    if is_ended {
        transaction(|| record::finish_was_lost(plan.id));
    }
    Ok(is_ended)
}

/// The version with which the source's redirect knows the split's keys.
fn redirected_version(plan: &Plan, identity: &str) -> Result<Option<i64>> {
    let mut source = session::open_mover(plan, Side::Source, "recovery")?;
    session::check_identity(&mut source, identity)?;
    redirect::known_version(&mut source, plan)
}

/// What the target's rows stand for.
pub fn stored_progress(engine: &mut Engine) -> Result<Progress> {
    let rows = engine
        .target
        .run(&format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {}", engine.plan.id))?;
    let read = |state: &str| Progress::read(state, engine.tables.len()).ok();
    Ok(rows.scalar().and_then(read).unwrap_or_default())
}

/// Carries a decided cutover to its end, as often as a shard forgets it. The source is
/// fenced before the target opens, whatever has happened to either since.
pub fn complete(engine: &mut Engine, version: i64) -> Result<()> {
    let id = engine.plan.id;
    if fence::is_left(&mut engine.target, id)? {
        return take_up_finish(engine, version);
    }
    let is_open = fence::state(&mut engine.target, id, Side::Target)?.0 == "open";
    if fence::state(&mut engine.control, id, Side::Source)?.0 == "capture" {
        fence_again(engine)?;
        reach(points::RECOVERY_FENCED)?;
        if is_open {
            report_stray(engine)?;
        }
    }
    if !is_open {
        require_frozen_rows(engine)?;
        catch_up(engine)?;
        reach(points::RECOVERY_CAUGHT_UP)?;
        sequences::raise(engine, sequences::Ahead::Enough)?;
    }
    cutover::open_target(engine, version)?;
    reach(points::CUTOVER_OPENED)?;
    cutover::move_source(engine, version)?;
    reach(points::CUTOVER_MOVED)?;
    cutover::record_moved(engine, None);
    Ok(())
}

/// A finish has left the target already: this master was restored to a time before, and takes
/// it up where it was.
fn take_up_finish(engine: &mut Engine, version: i64) -> Result<()> {
    let Engine { control, plan, .. } = engine;
    if let Some(text) = watch::difference(control, plan, Side::Source, ("moved", version))? {
        return Err(finish::source_forgot(plan, &text));
    }
    transaction(|| record::finish_was_lost(plan.id));
    Ok(())
}

/// Once finish has begun to delete, the source is no copy of what the target has lost.
fn require_frozen_rows(engine: &mut Engine) -> Result<()> {
    let id = engine.plan.id;
    let purging = engine
        .control
        .run(&format!("SELECT purging FROM shardmaster_agent.consumed WHERE split_id = {id}"))?;
    if purging.scalar() != Some("t") {
        return Ok(());
    }
    let (source, target) = (&engine.plan.source.shard_key, &engine.plan.target.shard_key);
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "shard \"{target}\" was set back to a time before the cutover of split {id}, whose rows finish has begun to delete on shard \"{source}\""
        ),
        format!(
            "Nothing more is deleted. Restore shard \"{target}\" to a time after the cutover, then resume the split."
        ),
    ))
}

/// Nobody writes on either side. A target that has failed over since the last window, or a
/// source that has and took writes meanwhile, is noticed by an ordinary step, which copies
/// again what does not count any more.
fn catch_up(engine: &mut Engine) -> Result<()> {
    let _said = wait::said();
    loop {
        let outcome = step::run(engine).map_err(|error| after_decision(error, engine.plan.id))?;
        if let Some(why) = &outcome.restarted {
            let text = format!("the copy starts again before the target opens: {why}");
            transaction(|| split::event(engine.plan.id, None, None, &text));
        }
        if outcome.is_empty() && outcome.progress.is_copied() {
            return Ok(());
        }
        wait::report(&format!(
            "rows to arrive on shard \"{}\" before it opens: {} copied",
            engine.plan.target.shard_key,
            outcome.progress.rows_copied()
        ));
    }
}

/// What a step finds to be wrong cannot be rolled back any more.
fn after_decision(error: SplitError, id: i64) -> SplitError {
    match error {
        SplitError::Failed(failure) => SplitError::Failed(failure.hint(format!(
            "The cutover has decided, and nothing is deleted. Undo the change, or restore the shard to a time after the cutover, then SELECT shard_split_resume({id})."
        ))),
        other => other,
    }
}

/// A source that lost its fence (it failed over) takes writes for keys that have
/// moved: it is fenced at once.
fn fence_again(engine: &mut Engine) -> Result<()> {
    let mut session = fence::open(engine)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    fence::lock(engine, &mut session, deadline, |_| Ok(()), |_| Ok(()))?;
    cutover::close_fence(engine, &mut session, deadline)?;
    fence::release(&mut session)?;
    let id = engine.plan.id;
    transaction(|| split::event(id, None, None, "the source had lost its fence and was fenced again"));
    Ok(())
}

/// The target takes writes already, so what the source took without its fence cannot be
/// brought over: it is told, and finish deletes nothing before the operator has seen it.
fn report_stray(engine: &mut Engine) -> Result<()> {
    let stray = stray_changes(engine)?;
    let text =
        format!("{stray} changes were made on the source after the last window, while it had no fence");
    transaction(|| split::event(engine.plan.id, None, None, &text));
    Ok(())
}

/// Changes on the source that no window has taken and none will.
pub fn stray_changes(engine: &mut Engine) -> Result<i64> {
    let progress = stored_progress(engine)?;
    let server = engine::observe(&mut engine.control, &engine.plan, Side::Source)?.server;
    let was_set_back = counters::read(engine)?.disagreement(progress.steps).is_some();
    // On another server, or another timeline, the last window's transaction ids are
    // given out again: there only what the source itself remembers counts.
    let is_same = server == progress.server && !was_set_back;
    let snapshot = if is_same { progress.snapshot } else { consumed_snapshot(engine)? };
    unseen_entries(engine, snapshot.as_deref())
}

/// The snapshot up to which the source has given its queue away.
fn consumed_snapshot(engine: &mut Engine) -> Result<Option<String>> {
    let rows = engine.control.run(&format!(
        "SELECT snapshot FROM shardmaster_agent.consumed WHERE split_id = {}",
        engine.plan.id
    ))?;
    Ok(rows.scalar().map(str::to_owned))
}

/// Queued changes that a snapshot has not seen; without one, all of them.
pub fn unseen_entries(engine: &mut Engine, snapshot: Option<&str>) -> Result<i64> {
    let condition = snapshot.map_or("true".to_owned(), |snapshot| {
        format!("NOT pg_visible_in_snapshot(xid, {}::pg_snapshot)", literal(snapshot))
    });
    let mut counts: Vec<String> = engine
        .tables
        .iter()
        .map(|t| format!("(SELECT count(*) FROM {} WHERE {condition})", t.queue))
        .collect();
    // Each of these transactions made at least one.
    counts.push(format!(
        "(SELECT count(*) FROM shardmaster_agent.overflow WHERE split_id = {} AND {condition})",
        engine.plan.id
    ));
    Ok(engine.control.count("the number of changes in a queue", &format!("SELECT {}", counts.join(" + ")))?)
}
