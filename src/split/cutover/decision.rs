//! What the shards record of a decision that this master does not know, because it failed over or was restored; it
//! adopts the decision from them. One shard's record is not enough: a cutover that was never made would be completed
//! by it, and finish would delete what only the source has. Invariant: the source confirms it. It is `moved` with the
//! same version; or it is `fenced`, and has noted which run of the master was about to decide.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::consumed;
use crate::agent::state::side::{self, SideRow, SideState};
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::server::sql;
use crate::server::txn::transaction;
use crate::split::engine::sessions::EngineSessions;

/// The greatest number of versions that a master may have lost. A number further ahead is no version of this keyspace:
/// adopting it would use up the remaining numbers.
const MOST_LOST: i64 = 1_000_000;

/// Returns the version with which, according to the shards, the cutover was decided.
pub fn lost(plan: &Plan, sessions: &mut EngineSessions) -> Result<Option<i64>> {
    let id = plan.id;
    let source = side::read(&mut sessions.control, id, Side::Source)?;
    let target = side::read(&mut sessions.target, id, Side::Target)?;
    let opened = target.and_then(SideRow::opened);
    let moved = source.and_then(|row| row.version);
    let source = source.map(|row| row.state);
    let version = match (source, moved, opened) {
        (Some(SideState::Moved), Some(moved), None) => moved,
        (Some(SideState::Moved), Some(moved), Some(opened)) if moved == opened => opened,
        // The source notes it before a decision, under its fence.
        (Some(SideState::Fenced), _, Some(opened))
            if consumed::deciding(&mut sessions.control, id)?.is_some() =>
        {
            opened
        }
        (Some(SideState::Moved), _, _) | (_, _, Some(_)) => {
            let says =
                opened.map_or("it is closed".to_owned(), |v| format!("it is open with routing version {v}"));
            return Err(refused(
                plan,
                &format!(
                    "shard \"{}\" reports {says}, shard \"{}\" is \"{}\"",
                    plan.target.shard_key,
                    plan.source.shard_key,
                    source.map_or("", SideState::as_str)
                ),
            ));
        }
        (_, _, None) => return Ok(None),
    };
    require_possible(plan, version)?;
    Ok(Some(version))
}

/// Refuses a version that this keyspace cannot have had.
pub fn require_possible(plan: &Plan, version: i64) -> Result<()> {
    let known = transaction(|| {
        sql::read_one(
            "SELECT coalesce(max(version), 0) FROM shardmaster.routing_version WHERE keyspace = $1",
            &[plan.keyspace.as_str().into()],
            |row| row.value::<i64>(1),
        )
    })
    .unwrap_or(0);
    if version > 0 && version <= known.saturating_add(MOST_LOST) {
        return Ok(());
    }
    Err(refused(
        plan,
        &format!(
            "routing version {version} does not belong to keyspace \"{}\", which is at {known}",
            plan.keyspace
        ),
    ))
}

fn refused(plan: &Plan, what: &str) -> SplitError {
    let (id, target) = (plan.id, &plan.target.shard_key);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("shard \"{target}\" records a decided cutover that nothing else confirms: {what}"),
        format!(
            "If the cutover was decided, and this master and the source were both restored, restore one of them to a time after it. Then call shard_split_resume({id}). If it was not decided, and nobody has written to shard \"{target}\": SELECT shard_split_rollback({id}, target_lost => true)."
        ),
    )
}
