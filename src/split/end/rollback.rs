//! Rollback before the decision: capture is removed first, then the scope's rows on the target, guarded until the last
//! of them is gone, then the objects, and the ledger last.

use super::purge;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::side::{self, Installed, SideState};
use crate::catalog::split::{self, Plan};
use crate::catalog::{split_ledger, split_progress};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::server::sql;
use crate::server::txn::{transaction, try_transaction};
use crate::split::copy::leaves;
use crate::split::cutover::{self, recovery};
use crate::split::injection_points::{self, reach};
use crate::split::{install, record, untrusted_code};

/// Undoes a split whose cutover, if one was interrupted, recovery has undone already. `remove_reverse` removes its
/// reverse split, on the side that is not lost.
pub fn run(tenure: &Tenure, remove_reverse: fn(&Tenure, Option<Side>) -> Result<()>) -> Result<()> {
    let plan = &tenure.plan;
    reach(injection_points::ROLLBACK_BEGIN)?;
    let target_lost = transaction(|| target_is_lost(plan.id));
    let was_begun = transaction(|| split_ledger::has_sides(plan.id)) || was_forgotten(tenure)?;
    if was_begun && !remove(tenure, target_lost)? {
        return Ok(());
    }
    reach(injection_points::ROLLBACK_OBJECTS)?;
    remove_reverse(tenure, target_lost.then_some(Side::Target))?;
    if was_begun {
        require_gone(tenure, target_lost)?;
    }
    try_transaction(|| record::rolled_back(plan.id, target_lost))
}

/// Removes the split from its shards. Returns false if the split has ended otherwise, which this master had lost.
fn remove(tenure: &Tenure, target_lost: bool) -> Result<bool> {
    let plan = &tenure.plan;
    let mut source = tenure.open(Side::Source, "rollback")?;
    let installed = side::installed(&mut source, plan, Side::Source)?;
    if installed == Installed::No && recovery::adopt_finished(tenure)? {
        return Ok(false);
    }
    let target = if target_lost { None } else { Some(take_target(tenure)?) };
    if installed == Installed::Ours {
        tenure.take_over(&mut source, Side::Source)?;
        revert(&mut source, plan, tenure.generation)?;
    }
    recovery::reopen_routes(plan)?;
    if installed != Installed::Foreign {
        install::drop_side(&mut source, plan.id, Side::Source)?;
    }
    reach(injection_points::ROLLBACK_CAPTURE)?;
    if let Some(target) = target {
        remove_from_target(target, tenure)?;
    }
    Ok(true)
}

/// Requires that nothing of the split is on a shard before the master forgets it. A shard that has its part again was
/// restored since, and has its rows again: the next attempt removes them.
fn require_gone(tenure: &Tenure, target_lost: bool) -> Result<()> {
    let sides = [Side::Source, Side::Target];
    for side in sides.into_iter().filter(|side| !(target_lost && *side == Side::Target)) {
        let mut session = tenure.open(side, "rollback")?;
        if side::installed(&mut session, &tenure.plan, side)? == Installed::Ours {
            return Err(SplitError::Retry(format!("shard \"{}\", which was restored", session.shard())));
        }
    }
    Ok(())
}

/// Opens the target's session; a decision that the target knows stands. This is checked once no other worker can open
/// the target any more: one of a master that has failed over may still run.
fn take_target(tenure: &Tenure) -> Result<Connection> {
    let plan = &tenure.plan;
    let mut target = tenure.open(Side::Target, "rollback").map_err(|error| match error {
        SplitError::Remote(mut error) if error.is_transient() => {
            error.hint = Some(format!(
                "Writers of the source are served. If the target is lost for good: SELECT shard_split_rollback({}, target_lost => true).",
                plan.id
            ));
            SplitError::Remote(error)
        }
        other => other,
    })?;
    if side::installed(&mut target, plan, Side::Target)? == Installed::Ours {
        tenure.take_over(&mut target, Side::Target)?;
        require_not_open(&mut target, plan)?;
    }
    Ok(target)
}

fn remove_from_target(mut target: Connection, tenure: &Tenure) -> Result<()> {
    let plan = &tenure.plan;
    let installed = side::installed(&mut target, plan, Side::Target)?;
    if installed != Installed::Ours {
        tell_unknown(plan);
    } else if plan.reverse_of.is_none() {
        // Without a committed step no row of the scope there is the split's.
        if let Some(found) = leaves::found(&mut target, plan, None)? {
            let only = Some(found.own.as_slice());
            purge::scope_rows::delete(
                &mut target,
                plan,
                Side::Target,
                tenure.generation,
                only,
                injection_points::ROLLBACK_BATCH,
            )?;
            tell_left_alone(plan, "the guard was changed", &found.changed);
            tell_left_alone(plan, "the condition for rows of the moving keys has changed", &found.otherwise);
            tell_left_alone(plan, "it is no longer a table of the split", &found.elsewhere);
            if found.has_attached() {
                tell_left_alone(plan, "attached meanwhile", &attached_with_rows(&mut target, plan)?);
            }
        }
    }
    reach(injection_points::ROLLBACK_ROWS)?;
    match installed {
        Installed::Foreign => Ok(()),
        Installed::No | Installed::Ours => install::drop_side(&mut target, plan.id, Side::Target),
    }
}

/// Returns the names of partitions that no step has recorded, and that have rows of the scope.
fn attached_with_rows(target: &mut Connection, plan: &Plan) -> Result<Vec<String>> {
    untrusted_code::reading(target, plan, Side::Target, |target, locked| {
        match leaves::found(target, plan, Some(locked))? {
            Some(found) => found.attached_with_rows(target, plan),
            None => Ok(Vec::new()),
        }
    })
}

/// Records that rows which others may have written are left for their writers to delete.
fn tell_left_alone(plan: &Plan, why: &str, leaves: &[String]) {
    if leaves.is_empty() {
        return;
    }
    let text = format!(
        "{why} on the target: {}: rows of the moving keys there were kept, because some may be from others; delete the copies by hand",
        leaves.join(", ")
    );
    transaction(|| split::event(plan.id, None, None, &text));
}

/// Records that nothing is known about rows on a target that does not know the split.
fn tell_unknown(plan: &Plan) {
    let text = format!(
        "shard \"{}\" has nothing of the split any more: copies of the moving keys that may be there were not deleted",
        plan.target.shard_key
    );
    transaction(|| {
        if split_progress::has_copied(plan.id) {
            split::event(plan.id, None, None, &text);
        }
    });
}

/// Refuses if the target was opened, which shows a decision; the source may have been restored since.
fn require_not_open(target: &mut Connection, plan: &Plan) -> Result<()> {
    if side::read(target, plan.id, Side::Target)?
        .is_some_and(|row| matches!(row.state, SideState::Open | SideState::Left))
    {
        return Err(decided(plan.id));
    }
    Ok(())
}

/// Withdraws the request for a rollback, which is not possible: the next turn attaches to both sides, finds the
/// decision, and adopts it.
fn decided(id: i64) -> SplitError {
    if let Err(error) = try_transaction(|| record::rollback_came_too_late(id)) {
        return error;
    }
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("the shards of split {id} know of a decided cutover that this master has lost"),
        format!("It is adopted. SELECT shard_split_wait({id}, 'completed') waits for that."),
    )
}

/// Undoes a cutover that was interrupted before its decision.
fn revert(source: &mut Connection, plan: &Plan, generation: i64) -> Result<()> {
    if side::state(source, plan.id, Side::Source)? == Some(SideState::Moved) {
        return Err(decided(plan.id));
    }
    cutover::source::reopen(source, plan.id, generation)
}

/// Whether the operator has declared that the target will not return.
fn target_is_lost(id: i64) -> bool {
    sql::read_one("SELECT target_lost FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.value(1)
    })
    .unwrap_or(false)
}

/// Whether a master that was restored to a time before the split began takes it for one that never has. A split that
/// was never begun needs no server to be undone: one that does not answer soon is not waited for.
fn was_forgotten(tenure: &Tenure) -> Result<bool> {
    let plan = &tenure.plan;
    let knows = |side: Side| -> Result<bool> {
        let mut session = session::with_connect_timeout(0, || tenure.open(side, "rollback"))?;
        Ok(side::installed(&mut session, plan, side)? == Installed::Ours)
    };
    let found = [Side::Source, Side::Target].map(|side| knows(side).unwrap_or(false));
    if !found.contains(&true) {
        return Ok(false);
    }
    transaction(|| {
        install::write_ledger(plan);
        split::event(plan.id, None, None, "the shards know this split, whose start this master had lost");
    });
    Ok(true)
}
