//! What the steps and the decision of a way back ask of the split that it takes back.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::{self, State};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::CutoverStep;
use crate::catalog::{verification, way_back};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::server::txn::transaction;

/// A source of the way back that was set back to a time before the cutover of the split has not all
/// of its rows: it gets them from the target first. Where the split has left it there is nothing
/// to be looked at.
pub fn require_open(source: &mut Connection, there: i64) -> Result<()> {
    match side::state(source, there, Side::Target)? {
        None | Some(State::Open | State::Left) => Ok(()),
        Some(_) => Err(SplitError::Retry(format!(
            "shard \"{}\", which was set back to a time before the cutover of split {there}",
            source.shard()
        ))),
    }
}

/// The way back has lost count of what has changed on the target of the split, and is about to copy all: rows of the
/// split's source that were found to be others there would be replaced, and may be the only right ones.
pub fn require_alike(plan: &Plan) -> Result<()> {
    let Some(there) = plan.reverse_of else { return Ok(()) };
    let Some((rows, tables)) = transaction(|| verification::differing(there)) else { return Ok(()) };
    let (from, to, id) = (&plan.source.shard_key, &plan.target.shard_key, plan.id);
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "{rows} rows of {tables} are not on shard \"{from}\" as they were at the cutover of split {there}, and all rows of shard \"{to}\" would be replaced by its own: the queue of changes was full or its lease had ended"
        ),
        format!(
            "Nothing was changed. SELECT shard_split_rollback({id}) leaves split {there} as it is; bring the right rows from shard \"{to}\" to shard \"{from}\" by hand, then SELECT shard_split_finish({there}, accept_missing => true)."
        ),
    ))
}

/// In the commit that decides the way back, which is the end of the split.
pub fn end(plan: &Plan, is_known: bool) -> Result<()> {
    let Some(there) = plan.reverse_of else { return Ok(()) };
    if !is_known && split::lock(there)?.cutover_step != CutoverStep::Moved {
        return Err(SplitError::Retry(format!("split {there} to complete its cutover")));
    }
    way_back::decided(there, plan.id);
    Ok(())
}
