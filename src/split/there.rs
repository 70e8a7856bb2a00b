//! What the steps and the decision of a way back ask of the split that it takes back.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::{self, State};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::CutoverStep;
use crate::catalog::way_back;
use crate::remote::Connection;

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

/// In the commit that decides the way back, which is the end of the split.
pub fn end(plan: &Plan, is_known: bool) -> Result<()> {
    let Some(there) = plan.reverse_of else { return Ok(()) };
    if !is_known && split::lock(there)?.cutover_step != CutoverStep::Moved {
        return Err(SplitError::Retry(format!("split {there} to complete its cutover")));
    }
    way_back::decided(there, plan.id);
    Ok(())
}
