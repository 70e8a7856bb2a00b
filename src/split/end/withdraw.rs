//! Withdrawing a decision that no shard has carried out: the target is gone for good before it has opened, or another
//! life of this master, which did not know the decision, has rolled the split back. The operator asks for it by a
//! rollback with `target_lost`. A rollback follows.
//!
//! Invariant: keys are routed to the source again only when nobody can open the target any more. A target that answers
//! is taken over first, so that an earlier worker cannot open it, and must not be open. The source must not have moved
//! its keys, which it does after the target has opened. For a target that does not answer, the operator's word counts.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::side::{self, Installed, SideState};
use crate::error::SqlState;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::try_transaction;
use crate::split::cutover::recovery;
use crate::split::injection_points::{self, reach};
use crate::split::record;

/// Withdraws the decision with this version of the routing. If a shard has carried it out, it stands, and the request
/// ends.
pub fn run(tenure: &Tenure, version: i64) -> Result<()> {
    let plan = &tenure.plan;
    reach(injection_points::ROLLBACK_BEGIN)?;
    let (target, silence) = take_target(tenure)?;
    let mut source = tenure.open(Side::Source, "rollback")?;
    match side::installed(&mut source, plan, Side::Source)? {
        Installed::Ours => {
            tenure.take_over(&mut source, Side::Source)?;
            if side::state(&mut source, plan.id, Side::Source)? == Some(SideState::Moved) {
                return Err(carried_out(tenure, &plan.source.shard_key, "records that its keys have moved"));
            }
        }
        Installed::No if recovery::adopt_finish(plan, version, &tenure.identity)? => return Ok(()),
        Installed::No => {}
        Installed::Foreign => return Err(side::foreign(source.shard(), plan).into()),
    }
    // Both are taken by now: a worker that took the target since has ended this session.
    if let Some(mut target) = target
        && side::state(&mut target, plan.id, Side::Target)? != Some(SideState::Closed)
    {
        return Err(carried_out(tenure, &plan.target.shard_key, "is open"));
    }
    reach(injection_points::WITHDRAW_TAKEN)?;
    try_transaction(|| record::withdrawn(plan, tenure.generation, silence.as_deref()))
}

/// Takes the target over, if it answers and has its side. Returns why it does not answer otherwise.
fn take_target(tenure: &Tenure) -> Result<(Option<Connection>, Option<String>)> {
    match session::with_connect_timeout(0, || tenure.take_if_there(Side::Target, "rollback")) {
        Ok(taken) => Ok((taken, None)),
        Err(SplitError::Remote(error)) if is_silent(&error) => Ok((None, Some(error.message))),
        Err(error) => Err(error),
    }
}

/// Whether there is no answer: no connection, a server that does not let anybody in, or one without the database. A
/// target that answers with any other error is asked again.
fn is_silent(error: &RemoteError) -> bool {
    let code = error.sqlstate.as_ref().map(SqlState::as_str);
    code.is_none_or(|code| code.starts_with("57P") || code == "3D000")
}

/// Ends the request: the decision stands.
fn carried_out(tenure: &Tenure, shard: &str, what: &str) -> SplitError {
    let id = tenure.plan.id;
    let text = format!("shard \"{shard}\" {what}");
    if let Err(error) = try_transaction(|| record::withdrawal_refused(id, tenure.generation, &text)) {
        return error;
    }
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("the decision of split {id} stands: {text}"),
        format!("SELECT shard_split_wait({id}, 'completed') waits until both shards know it."),
    )
}
