//! Conditions on a split that the steps and the decision of its reverse split check.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::side::{self, SideState};
use crate::catalog::reverse_split;
use crate::catalog::split::Plan;
use crate::catalog::split_state::{CutoverStep, row};
use crate::catalog::verification::{self, DifferingRows};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::server::txn::transaction;

/// Requires that the reverse split's source was not restored to a time before the cutover of the split: it would lack
/// rows, and gets them from the target first. If the split has left it, nothing is checked.
pub fn require_open(source: &mut Connection, there: i64) -> Result<()> {
    match side::state(source, there, Side::Target)? {
        None | Some(SideState::Open | SideState::Left) => Ok(()),
        Some(_) => Err(SplitError::Retry(format!(
            "shard \"{}\", which was restored to a time before the cutover of split {there}",
            source.shard()
        ))),
    }
}

/// Requires proof before the reverse split copies these tables (by position) again, which replaces the rows that its
/// target has kept since the cutover of the split. They may be replaced if they were shown to be on the other side
/// since, as before `finish`, or if the operator has permitted it; those that were found to differ never, since they
/// may be the only correct ones.
pub fn require_proven(plan: &Plan, tables: &[usize], why: &str) -> Result<()> {
    let Some(there) = plan.reverse_of.filter(|_| !tables.is_empty()) else { return Ok(()) };
    let ordinals: Vec<i32> = tables.iter().filter_map(|at| plan.tables.get(*at)).map(|t| t.ordinal).collect();
    let (differing, unproven, may_copy) = transaction(|| {
        let unproven = verification::not_compared(there, &ordinals);
        (verification::differing_among(there, Some(&ordinals)), unproven, reverse_split::may_copy(plan.id))
    });
    if let Some(found) = differing {
        return Err(differs(plan, there, &found, why));
    }
    match unproven {
        Some(names) if !may_copy => Err(unknown(plan, there, &names, why)),
        _ => Ok(()),
    }
}

fn differs(plan: &Plan, there: i64, found: &DifferingRows, why: &str) -> SplitError {
    let DifferingRows { rows, tables } = found;
    let (from, to, id) = (&plan.source.shard_key, &plan.target.shard_key, plan.id);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "{rows} rows of {tables} are not on shard \"{from}\" as they were at the cutover of split {there}, and all rows of these tables on shard \"{to}\" would be replaced by its own: {why}"
        ),
        format!(
            "Nothing was changed. SELECT shard_split_rollback({id}) leaves split {there} as it is. Copy the right rows from shard \"{to}\" to shard \"{from}\" by hand, then SELECT shard_split_finish({there}, accept_missing => true)."
        ),
    )
}

fn unknown(plan: &Plan, there: i64, tables: &str, why: &str) -> SplitError {
    let (from, to, id) = (&plan.source.shard_key, &plan.target.shard_key, plan.id);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "all rows of {tables} on shard \"{to}\" would be replaced by those of shard \"{from}\", and were not compared with them since the cutover of split {there}: {why}"
        ),
        format!(
            "Nothing was changed. SELECT shard_split_verify({there}) compares them if all changes since the cutover are known; then SELECT shard_split_reverse({there}) continues. If they may be replaced without that: SELECT shard_split_reverse({there}, copy_again => true). SELECT shard_split_rollback({id}) leaves split {there} as it is."
        ),
    )
}

/// Ends the split, in the commit that decides the reverse split.
pub fn end(plan: &Plan, is_known: bool) -> Result<()> {
    let Some(there) = plan.reverse_of else { return Ok(()) };
    if !is_known && row::lock(there)?.cutover_step != CutoverStep::Moved {
        return Err(SplitError::Retry(format!("split {there} to complete its cutover")));
    }
    reverse_split::decided(there, plan.id);
    Ok(())
}
