//! Whether a side still has the state that the cutover has set.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::{self, Installed, SideState};
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;

/// Describes the state of a side if it differs from the one that was set. Returns None if it does not.
pub fn difference(
    session: &mut Connection,
    plan: &Plan,
    side: Side,
    wanted: SideState,
    version: i64,
) -> Result<Option<String>> {
    let shard = session.shard().to_owned();
    if side::installed(session, plan, side)? != Installed::Ours {
        return Err(forgot_the_split(&shard, plan.id, side));
    }
    let row = side::read(session, plan.id, side)?;
    if row.is_some_and(|row| row.state == wanted && row.version == Some(version)) {
        return Ok(None);
    }
    let state = row.map_or("", |row| row.state.as_str());
    // If the state is the same, the version is what differs.
    let of = |version: Option<i64>| match (row.map(|row| row.state) == Some(wanted), version) {
        (true, Some(version)) => format!(" of routing version {version}"),
        _ => String::new(),
    };
    let (is, was) = (of(row.and_then(|row| row.version)), of(Some(version)));
    let wanted = wanted.as_str();
    Ok(Some(format!(
        "{} shard \"{shard}\" reports \"{state}\"{is} where it had \"{wanted}\"{was}",
        side.as_str()
    )))
}

/// Returns the error for a shard that was restored to a time before the split: its state cannot be restored from here,
/// and only the operator knows what else it has lost.
fn forgot_the_split(shard: &str, id: i64, side: Side) -> SplitError {
    let consequence = match side {
        Side::Source => "it accepts writes of keys that have moved; nothing is deleted from it",
        Side::Target => "its rows are not those that were moved there; nothing is deleted from the source",
    };
    let failure = Failure::new(
        SqlState::NOT_IN_STATE,
        format!(
            "{} shard \"{shard}\" no longer knows split {id}, whose cutover has decided: {consequence}",
            side.as_str()
        ),
    );
    SplitError::NotInstalled(failure.hint(
        "It was restored to a time before the split, or cleaned up. Keep clients off it, restore it to a time after the cutover, and resume the split.",
    ))
}

/// Returns the error for a source that has rows again while the target can no longer show which of them it has.
pub fn source_forgot(plan: &Plan, text: &str) -> SplitError {
    let shard = &plan.source.shard_key;
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "{text}: it was restored to a time before the cutover of split {}, whose rows had already left it",
            plan.id
        ),
        format!(
            "Nothing is deleted from it. Keep clients off it and restore shard \"{shard}\" to a time after the cutover. Then call shard_split_finish({}) again.",
            plan.id
        ),
    )
}
