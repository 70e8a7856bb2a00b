//! Between the cutover and finish: whether both shards still are what they were told. A
//! standby that is promoted, or a backup that is restored, may have forgotten it; then a
//! source takes writes of keys that have moved, or a target refuses its own clients.

use super::{fence, recovery};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Installed, Side};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::CutoverStep;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::server::sql;
use crate::server::txn::transaction;
use crate::split::cutover;

/// Looks at both shards. What is not as it should be is told to them again: the cutover
/// counts as decided, not more, and the worker completes it once more. A shard that is out
/// of reach is asked again next time: a worker that waited for it would keep others waiting.
pub fn run(plan: &Plan, version: i64, identity: &str) -> Result<()> {
    let mut forgotten = Vec::new();
    let mut unreachable = None;
    for (side, wanted) in [(Side::Source, "moved"), (Side::Target, "open")] {
        match ask(plan, side, (wanted, version), identity) {
            Ok(None) => {}
            Ok(Some(text)) => forgotten.push(text),
            Err(error) if error.may_pass() => unreachable = Some(error.to_string()),
            // Or else it was the master that was set back, to a time before the finish.
            Err(SplitError::NotInstalled(_)) if recovery::adopt_finish(plan, version, identity)? => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    transaction(|| {
        if !forgotten.is_empty() {
            cutover::set_step(plan.id, CutoverStep::Decided);
            split::event(plan.id, None, None, &format!("told again: {}", forgotten.join("; ")));
        }
        watched(plan.id, unreachable.as_deref());
    });
    Ok(())
}

fn ask(plan: &Plan, side: Side, told: (&str, i64), identity: &str) -> Result<Option<String>> {
    let mut session = session::open_mover(plan, side, "watch")?;
    session::check_identity(&mut session, identity)?;
    difference(&mut session, plan, side, told)
}

/// What a side says instead of what it was told; None: it has not forgotten.
pub fn difference(
    session: &mut Connection,
    plan: &Plan,
    side: Side,
    (wanted, version): (&str, i64),
) -> Result<Option<String>> {
    let shard = session.shard().to_owned();
    if session::installed(session, plan, side)? != Installed::Ours {
        return Err(forgot_the_split(&shard, plan.id, side));
    }
    let (state, known) = fence::state(session, plan.id, side)?;
    if state == wanted && known == Some(version) {
        return Ok(None);
    }
    Ok(Some(format!("{} shard \"{shard}\" says \"{state}\" where it was told \"{wanted}\"", side.as_str())))
}

/// A shard that was restored to a time before the split: nothing there can be told
/// anything, and only the operator knows what else it has lost.
fn forgot_the_split(shard: &str, id: i64, side: Side) -> SplitError {
    let consequence = match side {
        Side::Source => "it takes writes of keys that have moved; nothing is deleted from it",
        Side::Target => "its rows are not those that were moved there; nothing is deleted from the source",
    };
    let failure = Failure::new(
        SqlState::NOT_IN_STATE,
        format!(
            "{} shard \"{shard}\" does not know split {id} any more, whose cutover has decided: {consequence}",
            side.as_str()
        ),
    );
    SplitError::NotInstalled(failure.hint(
        "It was restored to a time before the split, or cleaned up. Keep clients off it, restore it to a time after the cutover, and resume the split.",
    ))
}

fn watched(id: i64, waiting_for: Option<&str>) {
    sql::write(
        "UPDATE shardmaster.split_plan SET watched_at = clock_timestamp(), waiting_for = $2 WHERE id = $1",
        &[id.into(), waiting_for.into()],
    );
}
