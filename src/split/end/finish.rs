//! Finish: the moved rows are deleted on the source, each batch after the target has shown that it has it. Then the
//! target's guard is dropped, the source's redirect takes over what the split's own triggers refuse, and all of the
//! split's own objects are dropped there, too. The redirect stays until the keys return or shard_split_redirect_drop()
//! ends it. Every part can be repeated, so an interrupted finish begins again where it was.

use super::proof::Prover;
use super::{before, purge};
use crate::agent::error::{Result, SplitError};
use crate::agent::seen;
use crate::agent::session::{self, Side};
use crate::agent::shape::TableShape;
use crate::agent::state::consumed;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::progress::{self, CopyProgress};
use crate::agent::state::side::{self, Installed, SideState};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{self, CutoverStep};
use crate::catalog::{redirect as stored, split_ledger};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::server::txn::transaction;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::copy::leaves;
use crate::split::cutover::{ended, side_state_check};
use crate::split::end::batch_proof::BatchProof;
use crate::split::end::proof::parallel::DeletePair;
use crate::split::end::purge::BlockDelete;
use crate::split::engine::session_pair::SessionPair;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Engine, stream_sessions};
use crate::split::injection_points::{self, reach};
use crate::split::record::FinishRequest;
use crate::split::table::{SplitTable, triggers};
use crate::split::verify::changes::Changes;
use crate::split::{install, redirect, references, untrusted_code};
use crate::words::counted;

/// Runs a finish. `engine` is of this tenure; it is given if rows are still to be deleted.
pub fn run(tenure: &Tenure, engine: Option<Engine>, request: &FinishRequest) -> Result<()> {
    let plan = &tenure.plan;
    reach(injection_points::FINISH_BEGIN)?;
    let goes_on = engine.is_some();
    let (source, target) = if request.is_purged || !goes_on && is_entered(tenure, request.version)? {
        (take_source(tenure, request.version)?, tenure.take_if_there(Side::Target, "finish")?)
    } else {
        let (source, target, deleted) = purge_source(tenure, engine, request)?;
        transaction(|| record_purged(plan.id, deleted, request.accepts));
        (Some(source), target)
    };
    reach(injection_points::FINISH_ROWS)?;
    let mut target = target.map(|target| require_still_open(target, plan, request.version)).transpose()?;
    let can_show = match &mut target {
        Some(target) => !side::is_left(target, plan.id)?,
        None => false,
    };
    let mut source =
        source.map(|source| require_still_moved(source, plan, request.version, can_show)).transpose()?;
    if source.is_some() && target.is_none() {
        return Err(target_forgot(plan));
    }
    // The guard and the log of deleted keys are dropped once no proof is needed any more.
    if let Some(target) = &mut target {
        install::leave_target(target, plan.id)?;
        redirect::forget_released(target, plan)?;
    }
    reach(injection_points::FINISH_UNGUARDED)?;
    if let Some(source) = &mut source {
        redirect::install(source, plan, tenure.generation, request.version)?;
        reach(injection_points::FINISH_REDIRECTED)?;
        triggers::drop_all(source, plan.id, Side::Source)?;
        reach(injection_points::FINISH_UNTRIGGERED)?;
        install::drop_side(source, plan.id, Side::Source)?;
    }
    reach(injection_points::FINISH_LEFT)?;
    if let Some(target) = &mut target {
        install::drop_side(target, plan.id, Side::Target)?;
    }
    reach(injection_points::FINISH_DROPPED)?;
    require_ended(tenure, request.version, [source, target])?;
    reach(injection_points::FINISH_OBJECTS)?;
    transaction(|| record_end(plan.id, FinishEnding::Redirected));
    Ok(())
}

/// Returns the error for a target that has lost its side: it must outlast the source's.
fn target_forgot(plan: &Plan) -> SplitError {
    let (id, source, target) = (plan.id, &plan.source.shard_key, &plan.target.shard_key);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "shard \"{target}\" no longer knows split {id}, and shard \"{source}\" still does: one of them was restored"
        ),
        format!(
            "If it was shard \"{target}\", restore it to a time after the cutover and call shard_split_finish({id}) again. If it was shard \"{source}\", after a finish that had ended: SELECT shard_split_finish({id}, source_lost => true), then shard_cleanup()."
        ),
    )
}

/// Refuses a target that was restored to a time before the cutover, once the source's rows are gone: it has lost what
/// no other shard holds. A target that an earlier finish has left is accepted.
fn require_still_open(mut target: Connection, plan: &Plan, version: i64) -> Result<Connection> {
    if side::is_left(&mut target, plan.id)? {
        return Ok(target);
    }
    let difference = side_state_check::difference(&mut target, plan, Side::Target, SideState::Open, version)?;
    let Some(text) = difference else { return Ok(target) };
    let (source, shard) = (&plan.source.shard_key, &plan.target.shard_key);
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "{text}: it was restored to a time before the cutover of split {}, whose rows have left shard \"{source}\"",
            plan.id
        ),
        format!(
            "Restore shard \"{shard}\" to a time after the cutover, then call shard_split_finish({}) again.",
            plan.id
        ),
    ))
}

/// Requires that no row is left on the source. Otherwise it was restored to a time before its fence: it has rows
/// again, and took writes of stale clients. If the target can still show what it has, finish begins again: fence,
/// proof and deletes.
fn require_still_moved(
    mut source: Connection,
    plan: &Plan,
    version: i64,
    can_show: bool,
) -> Result<Connection> {
    let difference =
        side_state_check::difference(&mut source, plan, Side::Source, SideState::Moved, version)?;
    let Some(text) = difference else { return Ok(source) };
    if can_show {
        transaction(|| begin_again(plan.id, &text));
        return Err(SplitError::Retry(text));
    }
    Err(side_state_check::source_forgot(plan, &text))
}

/// Restarts a finish because the source has rows again: both shards get their states once more, then the rows are
/// deleted anew.
fn begin_again(id: i64, text: &str) {
    split_state::cutover::step(id, CutoverStep::Decided);
    split_state::end::not_purged(id);
    split::event(id, None, None, &format!("state restored: {text}"));
}

/// Requires that each side has been left as intended. A side that has its part of the split again was restored since:
/// the next attempt handles that. A session is opened for a side that had no part.
fn require_ended(tenure: &Tenure, version: i64, sessions: [Option<Connection>; 2]) -> Result<()> {
    let plan = &tenure.plan;
    for (side, session) in [Side::Source, Side::Target].into_iter().zip(sessions) {
        let mut session = session.map_or_else(|| tenure.open(side, "finish"), Ok)?;
        let is_back = side::installed(&mut session, plan, side)? == Installed::Ours;
        let is_unguarded = side == Side::Source && !is_guarded(&mut session, plan, version)?;
        if is_back || is_unguarded {
            return Err(SplitError::Retry(format!("shard \"{}\", which was restored", session.shard())));
        }
    }
    Ok(())
}

/// Whether the keys are in the redirect, which is done after the last row was deleted: a restored master may not know
/// this.
pub fn is_entered(tenure: &Tenure, version: i64) -> Result<bool> {
    let mut session = tenure.open(Side::Source, "finish")?;
    is_entered_on(&mut session, &tenure.plan, version)
}

fn is_entered_on(source: &mut Connection, plan: &Plan, version: i64) -> Result<bool> {
    Ok(redirect::known_version(source, plan)?.is_some() || ended::is_shown(source, plan, version)?)
}

/// Whether the source is guarded without its side: the redirect has the keys, or had them before it was dropped; or
/// none of the tables, whose writers it would refuse, exists any more.
fn is_guarded(source: &mut Connection, plan: &Plan, version: i64) -> Result<bool> {
    if is_entered_on(source, plan, version)? {
        return Ok(true);
    }
    let observed = seen::look(source, plan, Side::Source)?;
    Ok(observed.tables.iter().all(|shape| shape.oid.is_none()))
}

/// Takes the source, unless it is guarded without its side.
fn take_source(tenure: &Tenure, version: i64) -> Result<Option<Connection>> {
    let mut session = tenure.open(Side::Source, "finish")?;
    if is_guarded(&mut session, &tenure.plan, version)? {
        return tenure.take_if_there(Side::Source, "finish");
    }
    tenure.take(Side::Source, "finish").map(Some)
}

/// Deletes the scope's rows on the source and returns their number. The sessions of both sides are used further.
fn purge_source(
    tenure: &Tenure,
    engine: Option<Engine>,
    request: &FinishRequest,
) -> Result<(Connection, Option<Connection>, u64)> {
    let mut tenure = tenure.clone();
    if request.accepts {
        leave_out_dropped(&mut tenure.plan)?;
    }
    if tenure.plan.tables.is_empty() {
        return Ok((tenure.take(Side::Source, "finish")?, tenure.take_if_there(Side::Target, "finish")?, 0));
    }
    let engine = engine.map_or_else(|| Engine::attach(&tenure), Ok)?;
    let (engine, deleted) = delete_rows(engine, request)?;
    Ok((engine.sessions.control, Some(engine.sessions.target), deleted))
}

fn delete_rows(mut engine: Engine, request: &FinishRequest) -> Result<(Engine, u64)> {
    before::require_ready(&engine.tenure.plan, &mut engine.sessions, &engine.tables, request)?;
    let mut source = session::open_mover(&engine.tenure.plan, Side::Source, "finish")?;
    session::require_one_server(&source, &engine.sessions.control)?;
    epoch::register(&mut source, &engine.tenure.plan, Side::Source)?;
    // This is durable before the first row is deleted: from here on the rows cannot be copied again.
    let purge = consumed::purge(engine.tenure.plan.id);
    engine.sessions.control_transaction(&engine.tenure, &purge)?;
    source.run("SET session_replication_role = replica")?;
    let progress = progress::stored(&mut engine.sessions.target, &engine.tenure.plan)?.unwrap_or_default();
    let inbound = references::inbound_fks::InboundFks::load(&mut source, &engine.tenure.plan, Side::Source)?;
    let key_identity = KeyIdentity::stored(&progress, &engine.tenure.plan.scope, Side::Source);
    let (generation, after_batch) = (engine.tenure.generation, injection_points::FINISH_BATCH);
    let delete = BlockDelete::new(&engine.tenure.plan, inbound, key_identity, generation, after_batch);
    let shapes: Vec<TableShape> = engine.tables.iter().map(|table| table.source.clone()).collect();
    let deleted = purge::small_batch::tables(
        &mut (&mut engine, &mut source),
        &shapes,
        |(engine, source), some| {
            if request.accepts {
                // Rows that may be missing are counted table by table.
                Ok(purge::small_batch::Gone::new())
            } else {
                let mut shown = BatchProof::by(
                    &engine.tenure.plan,
                    &mut engine.sessions.target,
                    &engine.tables,
                    &progress,
                );
                delete.few(source, some, &shapes, Some(&mut shown))
            }
        },
        |(engine, source), position, shape| {
            delete_table(engine, source, &delete, position, shape, &progress, request.accepts)
        },
    )?;
    require_all_passed(&engine.tenure.plan, &mut engine.sessions, &engine.tables, request.accepts)?;
    Ok((engine, deleted))
}

/// Deletes the rows of one table: one batch, and if that was not all, several at a time.
fn delete_table(
    engine: &mut Engine,
    source: &mut Connection,
    delete: &BlockDelete,
    position: usize,
    shape: &TableShape,
    progress: &CopyProgress,
    accepts: bool,
) -> Result<u64> {
    let Engine { sessions: EngineSessions { target, .. }, tenure: Tenure { plan, .. }, tables, .. } =
        &mut *engine;
    let changes = Changes::of(plan, progress, &tables[position], position);
    let prover = Some(Prover::new(target, plan, &tables[position], changes.clone(), accepts)?);
    let Some(mut of_table) = delete.of_table(source, position, shape)? else { return Ok(0) };
    let mut deleted = of_table.some(&mut [DeletePair { session: &mut *source, prover }])?;
    if of_table.is_over() {
        return Ok(deleted);
    }
    stream_sessions::open_to_delete(&engine.tenure, &mut engine.sessions, engine.mode, progress)?;
    let Engine {
        sessions: EngineSessions { target, streams, .. }, tenure: Tenure { plan, .. }, tables, ..
    } = engine;
    let own = SessionPair { source, target };
    let mut pairs = Vec::new();
    for SessionPair { source: session, target } in SessionPair::all(own, &mut streams.open) {
        let prover = Some(Prover::new(target, plan, &tables[position], changes.clone(), accepts)?);
        pairs.push(DeletePair { session, prover });
    }
    let are_several = pairs.len() > 1;
    while !of_table.is_over() {
        let gone =
            of_table.some(&mut pairs).map_err(|error| if are_several { of_several(error) } else { error })?;
        deleted = deleted.saturating_add(gone);
    }
    Ok(deleted)
}

/// Makes an error of several sessions transient, since one session may succeed: the next attempt has only one.
fn of_several(error: SplitError) -> SplitError {
    if stream_sessions::is_in_the_way(&error) { SplitError::Retry(error.to_string()) } else { error }
}

/// Checks that no row is left: a table or partition that was added while rows were deleted was in no batch, and
/// triggers that were disabled meanwhile admitted rows behind the last one.
fn require_all_passed(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    accepts: bool,
) -> Result<()> {
    let EngineSessions { control, target, .. } = sessions;
    untrusted_code::reading(control, plan, Side::Source, |source, locked| {
        if !accepts {
            leaves::check_source_before_finish(source, locked, target, plan)?;
        }
        let now = seen::look(source, plan, Side::Source)?;
        locked.require_leaves(source.shard(), &now.tables)?;
        for ((shape, table), policy) in now.tables.iter().zip(tables.iter()).zip(&plan.tables) {
            let Some(column) = shape.column(&policy.shard_by) else { continue };
            let passed = table.source.leaves();
            for leaf in shape.leaves() {
                let is_new = passed.iter().all(|known| known.oid != leaf.oid);
                if is_new && leaves::find_row(source, plan, column, &leaf.name, true)?.is_some() {
                    let shard = &plan.source.shard_key;
                    return Err(SplitError::Retry(format!(
                        "{} on shard \"{shard}\", which was added while rows were deleted",
                        leaf.name
                    )));
                }
            }
        }
        Ok(())
    })
}

/// Leaves out tables that the source does not have any more: they hold no rows that could be deleted.
pub fn leave_out_dropped(plan: &mut Plan) -> Result<()> {
    let mut source = session::open_mover(plan, Side::Source, "finish")?;
    let observed = seen::look(&mut source, plan, Side::Source)?;
    let mut shapes = observed.tables.iter();
    plan.tables.retain(|_| shapes.next().is_some_and(|shape| shape.oid.is_some()));
    Ok(())
}

fn record_purged(id: i64, deleted: u64, accepts: bool) {
    split_state::end::purged(id);
    let shown = if accepts {
        "missing ones accepted"
    } else {
        "each proven to be on the target as it was, or changed there since"
    };
    split::event(
        id,
        None,
        None,
        &format!("{} deleted from the source, {shown}", counted(deleted, "row", "rows")),
    );
}

/// What has happened to the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishEnding {
    /// It refuses clients of what has left.
    Redirected,
    /// The operator has declared it lost for good.
    SourceLost,
    /// It has its keys again.
    Reversed,
}

/// Records that the split is finished.
pub fn record_end(id: i64, ending: FinishEnding) {
    split_state::end::finished(id);
    split_state::plan::hold_keys(id, false);
    split_ledger::removed(id, (ending == FinishEnding::SourceLost).then_some("source"));
    if ending == FinishEnding::Redirected {
        stored::record(id);
    }
    let end = if ending == FinishEnding::Reversed { "reversed" } else { "finished" };
    split::event(id, None, None, end);
    split::notify(id, "completed", end);
}
