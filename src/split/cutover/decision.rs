//! What the shards say of a decision that this master does not know: it failed over, or was
//! restored, and takes it from them. One shard's word is not enough, since a cutover that
//! was never made would complete by it, and finish would delete what only the source has.
//! Invariant: the source bears it out. It is `moved` with the same version; or it is
//! `fenced`, and has noted which run of the master was about to decide.

use super::fence;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::server::sql;
use crate::server::txn::transaction;
use crate::split::engine::Engine;

/// Versions that a master may have lost. A number further ahead is no version of this
/// keyspace: taken over, it would use up those that are left.
const MOST_LOST: i64 = 1_000_000;

/// The version with which the shards say that the cutover was decided.
pub fn lost(engine: &mut Engine) -> Result<Option<i64>> {
    let id = engine.plan.id;
    let (source, moved) = fence::state(&mut engine.control, id, Side::Source)?;
    let (target, opened) = fence::state(&mut engine.target, id, Side::Target)?;
    let opened = opened.filter(|_| target == "open" || target == "left");
    let version = match (source.as_str(), moved, opened) {
        ("moved", Some(moved), None) => moved,
        ("moved", Some(moved), Some(opened)) if moved == opened => opened,
        ("fenced", _, Some(opened)) if was_about_to_be_made(engine)? => opened,
        ("moved", _, _) | (_, _, Some(_)) => {
            let says =
                opened.map_or("it is closed".to_owned(), |v| format!("it is open with routing version {v}"));
            return Err(refused(
                &engine.plan,
                &format!(
                    "shard \"{}\" says {says}, shard \"{}\" is \"{source}\"",
                    engine.plan.target.shard_key, engine.plan.source.shard_key
                ),
            ));
        }
        (_, _, None) => return Ok(None),
    };
    require_possible(&engine.plan, version)?;
    Ok(Some(version))
}

/// The source notes it before a decision, under its fence.
fn was_about_to_be_made(engine: &mut Engine) -> Result<bool> {
    let deciding = engine.control.run(&format!(
        "SELECT deciding IS NOT NULL FROM shardmaster_agent.consumed WHERE split_id = {}",
        engine.plan.id
    ))?;
    Ok(deciding.scalar() == Some("t"))
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
        &format!("routing version {version} is none of keyspace \"{}\", which is at {known}", plan.keyspace),
    ))
}

fn refused(plan: &Plan, what: &str) -> SplitError {
    let (id, target) = (plan.id, &plan.target.shard_key);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("shard \"{target}\" knows of a decided cutover that nothing else bears out: {what}"),
        format!(
            "If the cutover was decided, and this master and the source were both set back, restore one of them to a time after it and call shard_split_resume({id}). If it was not, and nobody has written to shard \"{target}\": SELECT shard_split_rollback({id}, target_lost => true)."
        ),
    )
}
