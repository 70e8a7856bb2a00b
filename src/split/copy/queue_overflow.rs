//! An overflow of the queue of changes: it did not take everything that was written, so the copy starts again.

use super::window;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::progress::{self, CopyProgress, TableProgress};
use crate::agent::state::{lease, overflow, queue};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{Goal, row};
use crate::remote::Connection;
use crate::server::txn::transaction;
use crate::server::wait;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::copy::outcome::StepOutcome;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Engine, holders};
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use std::time::Duration;

/// Records in the split's history why capture has stopped.
pub fn tell_stopped(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let why = if sessions.queue_bytes(tables)? >= crate::guc::queue_max_bytes() {
        "its queue was full (shardmaster.queue_max_size)"
    } else {
        "its lease had expired (shardmaster.capture_lease)"
    };
    let shard = &plan.source.shard_key;
    let text = format!("the copy starts again: capture on shard \"{shard}\" had stopped, {why}");
    transaction(|| split::event_again(plan.id, &text));
    Ok(())
}

/// Restarts after an overflow: the queue did not take everything, so the target starts from nothing. It stores that
/// first, then removes the marks, so that new writes are queued again.
pub fn drain_overflow(engine: &mut Engine, before: &CopyProgress) -> Result<()> {
    let Engine { tenure, sessions, tables, queues, .. } = engine;
    let plan = &tenure.plan;
    sessions.target.run("ROLLBACK")?;
    sessions.reader.run("ROLLBACK")?;
    let id = plan.id;
    epoch::begin_as(&mut sessions.target, id, Side::Target, tenure.generation)?;
    let empty = CopyProgress {
        steps: queues.counters.consumed,
        draining: true,
        last_event_id: before.last_event_id,
        last_event_at: before.last_event_at,
        tables: before
            .tables
            .iter()
            .map(|table| TableProgress {
                structure: table.structure.clone(),
                target_structure: table.target_structure.clone(),
                columns: table.columns.clone(),
                target_columns: table.target_columns.clone(),
                target_leaves: table.target_leaves.clone(),
                ..TableProgress::default()
            })
            .collect(),
        ..CopyProgress::default()
    };
    let key_identity = KeyIdentity::stored(before, &plan.scope, Side::Target);
    for table in tables.iter() {
        window::delete_scope(plan, sessions, table, &key_identity)?;
    }
    progress::store(&mut sessions.target, id, &empty)?;
    sessions.target.run("COMMIT")?;
    reach(injection_points::OVERFLOW_RESET)?;
    let queues: Vec<String> = tables.iter().map(|t| queue::clear(&t.queue)).collect();
    sessions.control_transaction(
        tenure,
        &format!("{}; {}; {}", queues.join("; "), overflow::delete(id), lease::renew(id)),
    )?;
    reach(injection_points::OVERFLOW_CLEARED)?;
    // A writer that finds the queue closed until here leaves a mark, and this is done once more.
    sessions.control.run(&queue::reopen(id))?;
    Ok(())
}

/// Ends the wait after an overflow. A transaction that saw a mark and skipped the queue may still be open: once all of
/// them have ended, the next snapshot sees what they did, and the copy may begin.
pub fn end_draining(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    mut progress: CopyProgress,
) -> Result<StepOutcome> {
    sessions.target.run("ROLLBACK")?;
    sessions.reader.run("ROLLBACK")?;
    wait_for_holders(&tenure.plan, &mut sessions.control)?;
    progress.draining = false;
    epoch::begin_as(&mut sessions.target, tenure.plan.id, Side::Target, tenure.generation)?;
    progress::store(&mut sessions.target, tenure.plan.id, &progress)?;
    sessions.target.run("COMMIT")?;
    Err(SplitError::Retry("the copy to start again: writers without a queue have ended".into()))
}

/// Waits for the transactions that hold the capture lock now.
fn wait_for_holders(plan: &Plan, control: &mut Connection) -> Result<()> {
    let holders = holders::holders(control, plan.id)?;
    let _status = wait::status_scope();
    loop {
        let now = holders::holders(control, plan.id)?;
        let left: Vec<String> =
            now.iter().filter(|h| holders.iter().any(|o| o.id == h.id)).map(|h| h.text.clone()).collect();
        if left.is_empty() {
            return Ok(());
        }
        if transaction(|| row::read(plan.id)).is_ok_and(|state| state.goal == Goal::RolledBack) {
            return Err(SplitError::Retry("the rollback that was asked for".into()));
        }
        wait::report(&format!(
            "transactions on shard \"{}\" that wrote while the queue was full to end: {}",
            plan.source.shard_key,
            left.join(", ")
        ));
        wait::sleep(Duration::from_millis(100));
    }
}
