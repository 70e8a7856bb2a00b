//! Reads of a split's keys that go to its target before its cutover. Invariant: while they do, the target has all of
//! the rows as the source had them, as late as the lag says. So before rows of it are deleted to be copied again, or
//! the split is undone, reads go back to the source, and also as soon as it fails.

use crate::agent::error::{Result as Outcome, SplitError};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::request;
use crate::error::Failure;
use crate::routing::change;
use crate::server::sql;
use crate::server::txn::{transaction, with_lock_timeout};

/// Whether reads go to the target.
pub fn are_on_target(id: i64) -> bool {
    let query = "SELECT reads_on_target FROM shardmaster.split_plan WHERE id = $1";
    sql::read_one(query, &[id.into()], |row| row.value(1)).unwrap_or(false)
}

pub fn send_to_target(plan: &Plan) -> Result<(), Failure> {
    send(plan, true, "")
}

/// Directs reads to the source again, if they go to the target.
pub fn send_back(id: i64, why: &str) -> Result<(), Failure> {
    if !are_on_target(id) {
        return Ok(());
    }
    send(&split::load(id)?, false, why)
}

/// Directs reads to the source before rows of the target are deleted, or because they were found to differ. The step
/// is repeated afterwards.
pub fn require_none(id: i64, why: &str) -> Outcome<()> {
    if !transaction(|| are_on_target(id)) {
        return Ok(());
    }
    // Another session may hold the routes on the master for long, while this step holds locks on the target.
    if let Some(done) = with_lock_timeout(|| send_back(id, why)) {
        done?;
    }
    Err(SplitError::Retry("reads to be switched back to the source".into()))
}

/// Directs reads to the source because the split has failed, and no longer follows its source. If that fails, it is
/// recorded.
pub fn come_home(id: i64) {
    if let Err(error) = send_back(id, ": it has failed") {
        split::event(id, None, None, &format!("reads were not switched back: {}", error.message));
    }
}

fn send(plan: &Plan, to_target: bool, why: &str) -> Result<(), Failure> {
    let target = to_target.then_some(plan.target.shard_key.as_str());
    change::send_reads(&plan.keyspace, &plan.entries, target)?;
    request::reads(plan.id, to_target);
    let shard = if to_target { &plan.target } else { &plan.source };
    split::event(plan.id, None, None, &format!("reads go to {}{why}", shard.shard_key));
    Ok(())
}
