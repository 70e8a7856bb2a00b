//! Ends statements in two phases that cannot continue, and those whose session is gone.

use super::error::not_settled;
use super::recovery;
use super::two_phase::Reason;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, ExecutionState};
use crate::error::Failure;
use crate::execution::held_execution::{Lock, SPACE};
use crate::server::txn::in_one;
use std::time::Duration;

/// Undoes the statement on all shards, since nothing is decided, and records the reasons of the shards that failed.
pub fn give_up(id: i64, reasons: Vec<Reason>, first: Failure, timeout: Duration) -> Result<Failure, Failure> {
    let (unknown, failed): (Vec<Reason>, Vec<Reason>) =
        reasons.into_iter().partition(|reason| reason.fails_as == ExecutionState::Unknown);
    let ends_badly =
        |Reason { shard, fails_as, why }: &Reason| execution::ends_badly(id, shard, *fails_as, why);
    Caller::as_owner(|_| unknown.iter().try_for_each(ends_badly))?;
    let unreached = recovery::settle(id, timeout, false)?;
    Caller::as_owner(|_| {
        let places = execution::places(id);
        let waits = |shard: &str| {
            places.iter().any(|place| place.shard == shard && place.state == ExecutionState::Waiting)
        };
        failed.iter().filter(|reason| waits(&reason.shard)).try_for_each(ends_badly)
    })?;
    Ok(match unreached {
        Some(_) => not_settled(first, false),
        None => first,
    })
}

/// Returns the executions in two phases that nobody carries out any more, and of which something may be open on a
/// shard.
pub fn orphans() -> Vec<i64> {
    execution::open_without(SPACE)
}

/// Settles one of these. Returns None if it is settled, or if somebody carries it out after all.
pub fn settle_left(id: i64, timeout: Duration) -> Option<Failure> {
    let _lock = in_one(|| Lock::take(id))?;
    match recovery::settle(id, timeout, false) {
        Ok(unreached) => unreached,
        Err(why) => Some(why),
    }
}

/// Whether there is an execution of either kind.
pub fn any_left() -> bool {
    !orphans().is_empty() || !execution::to_look_at().is_empty()
}

/// Checks one of the done executions again. A shard that cannot be asked is asked the next time.
pub fn look_again(id: i64, timeout: Duration) {
    let Some(_lock) = in_one(|| Lock::take(id)) else { return };
    if let Err(why) | Ok(Some(why)) = recovery::settle(id, timeout, true) {
        pgrx::log!("execution {id} was not examined: {}", why.cleaned());
    }
    in_one(|| Caller::as_owner(|_| execution::was_looked_at(id)));
}
