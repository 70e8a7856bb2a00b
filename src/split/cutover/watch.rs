//! Monitoring between the cutover and finish: whether both shards still have the states that were set. A standby that
//! is promoted, or a backup that is restored, may have lost them; then a source takes writes of keys that have moved,
//! or a target refuses its own clients.

use super::recovery;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::SideState;
use crate::agent::state::{epoch, lease};
use crate::catalog::reverse_split::{self, WayBack};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{self, CutoverStep};
use crate::server::txn::transaction;
use crate::split::cutover::side_state_check;

/// Checks both shards. If a state was lost, the cutover counts as only decided, and the worker completes it once more.
/// An unreachable shard is asked again next time: a worker that waited for it would keep others waiting.
pub fn run(plan: &Plan, version: i64, identity: &str) -> Result<()> {
    let mut forgotten = Vec::new();
    let mut unreachable = None;
    for (side, wanted) in [(Side::Source, SideState::Moved), (Side::Target, SideState::Open)] {
        match ask(plan, side, wanted, version, identity) {
            Ok(None) => {}
            Ok(Some(text)) => forgotten.push(text),
            Err(error) if error.is_transient() => unreachable = Some(error.to_string()),
            // Otherwise it was the master that was restored, to a time before the finish.
            Err(SplitError::NotInstalled(_)) if recovery::adopt_finish(plan, version, identity)? => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    transaction(|| {
        if !forgotten.is_empty() {
            split_state::cutover::step(plan.id, CutoverStep::Decided);
            split::event(plan.id, None, None, &format!("state restored: {}", forgotten.join("; ")));
        }
        split_state::work::watched(plan.id, unreachable.as_deref());
    });
    Ok(())
}

fn ask(plan: &Plan, side: Side, wanted: SideState, version: i64, identity: &str) -> Result<Option<String>> {
    let mut session = epoch::open(plan, identity, side, "watch")?;
    let difference = side_state_check::difference(&mut session, plan, side, wanted, version)?;
    if let (Side::Target, None) = (side, &difference) {
        let back = transaction(|| reverse_split::of(plan.id))?.filter(WayBack::rests);
        if let Some(back) = back {
            session.run(&lease::limit(back.id))?;
        }
    }
    Ok(difference)
}
