//! Opening the target after a decision: clients may write there.

use super::behind::FenceAnswers;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::decision::{Decided, EarlierDecisions};
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::side::{self, Version};
use crate::catalog::split::Plan;
use crate::catalog::split_state::{self, CutoverStep};
use crate::remote::Connection;
use crate::server::standby;
use crate::server::txn::with_lock_timeout;
use crate::split::cutover::old_guards::{self, OldGuards};
use crate::split::engine::QueueState;
use crate::split::engine::sessions::EngineSessions;

/// 5b. Opens the target: clients may write there. Guards that would refuse keys which return are released by the same
/// commit: until it, a split that is undone after all finds them unchanged. It is retried for ever.
pub fn open_target(tenure: &Tenure, target: &mut Connection, version: i64) -> Result<()> {
    let guards = old_guards::find(target, &tenure.plan)?;
    open_with(tenure, target, version, &guards)
}

/// Opens the target right after the decision. Meanwhile the source removes the copied changes from its queues; a
/// failure of that does not keep the target closed.
pub fn open_and_consume(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    queues: &mut QueueState,
    version: i64,
    found: FenceAnswers,
) -> Result<()> {
    let sent = queues.owed.take().map(|statements| sessions.send_control_transaction(tenure, &statements));
    match found.guards {
        Some(guards) => open_with(tenure, &mut sessions.target, version, &guards)?,
        None => open_target(tenure, &mut sessions.target, version)?,
    }
    match sent {
        Some(sent) => sent.and_then(|()| sessions.take_control_transaction()),
        None => Ok(()),
    }
}

fn open_with(tenure: &Tenure, target: &mut Connection, version: i64, guards: &OldGuards) -> Result<()> {
    open_by(target, &tenure.plan, tenure.generation, version, guards)?;
    record_opened(&tenure.plan);
    Ok(())
}

/// Records it for people. A lock on the plan's row on the master does not keep the source from being told.
pub fn record_opened(plan: &Plan) {
    let _ = with_lock_timeout(|| {
        standby::commit_alone();
        split_state::cutover::step(plan.id, CutoverStep::Opened);
        Ok::<_, SplitError>(())
    });
}

/// Does the part of it that concerns the target.
pub fn open_side(target: &mut Connection, plan: &Plan, generation: i64, version: i64) -> Result<()> {
    let guards = old_guards::find(target, plan)?;
    open_by(target, plan, generation, version, &guards)
}

fn open_by(
    target: &mut Connection,
    plan: &Plan,
    generation: i64,
    version: i64,
    guards: &OldGuards,
) -> Result<()> {
    let earlier = EarlierDecisions::before(plan, version);
    let decided = Decided::of(plan, version, &earlier);
    if guards.is_empty() {
        return epoch::change(target, plan.id, generation, &side::OPEN, Version::Is(decided)).map(|_| ());
    }
    let begin = epoch::begin_statements(plan.id, Side::Target, generation);
    let opened = target.run(&format!("{begin}; {}", side::OPEN.of_side(plan.id, &version.to_string())));
    epoch::begun(target, opened)?;
    old_guards::release(target, plan, guards)?;
    target.run(&format!("{}; COMMIT", side::OPEN.note(plan.id, decided)))?;
    Ok(())
}
