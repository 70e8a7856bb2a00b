//! The shards of an execution: how they are reached, and whether a statement may begin there.

use super::error;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, Execution};
use crate::catalog::login::LoginRole;
use crate::catalog::{in_use, misplaced_run, shard};
use crate::error::Failure;
use crate::query::login::{self, Entrance, LoginWay};
use crate::query::run::chosen;
use crate::server::txn::in_one;
use std::time::Duration;

/// Returns connections to shards by their names, with the caller's login; in two phases with that of the role that
/// began the execution, since a prepared transaction is ended by the login that made it.
pub fn ways(execution: &Execution, shards: &[String], timeout: Duration) -> Result<Vec<LoginWay>, Failure> {
    Caller::as_owner(|caller| {
        let role = if execution.two_phase { beginner(execution.id)? } else { login::role_of(caller)? };
        chosen(Some(shards))?.iter().map(|shard| login::entrance(&role, shard, timeout)).collect()
    })
}

/// Returns how each shard is reached to end what is left there of an execution in two phases, even if the shard is
/// disabled. This works in a session's transaction, and in one of a worker.
pub fn ways_back(id: i64, shards: &[String], timeout: Duration) -> Vec<Result<LoginWay, Failure>> {
    let known: Vec<Result<(Entrance, String), Failure>> = in_one(|| {
        Caller::as_owner(|_| {
            let role = beginner(id);
            let entrance = |name: &String| {
                let role = role.clone()?;
                let shard = shard::by_key(name)?;
                login::known(&role, &shard).map(|entrance| (entrance, role.name))
            };
            shards.iter().map(entrance).collect()
        })
    });
    let way = |(entrance, role): (Entrance, String)| login::way(entrance, &role, timeout);
    known.into_iter().map(|known| known.map(way)).collect()
}

/// Is called before an execution in two phases runs again: a role that continues it needs the logins with which it was
/// begun. These logins are used without this check to end what is left of it.
pub fn require_beginners_login(id: i64) -> Result<(), Failure> {
    Caller::as_owner(|caller| {
        if caller.is_superuser() {
            return Ok(());
        }
        let (has, began) = (login::role_of(caller)?, beginner(id)?);
        if has.id == began.id { Ok(()) } else { Err(error::other_beginner(id, &began.name, &has.name)) }
    })
}

fn beginner(id: i64) -> Result<LoginRole, Failure> {
    execution::login_role(id).ok_or_else(|| error::beginner_is_gone(id))
}

/// A running split relies on its tables staying as they are.
pub fn require_no_split(shard: &str) -> Result<(), Failure> {
    match in_use::split_under_way(shard) {
        Some(split) => Err(error::split_on_shard(shard, split)),
        None => Ok(()),
    }
}

/// A run that moves misplaced rows from or to the shard relies on that too.
pub fn require_no_run(shard: &str) -> Result<(), Failure> {
    match misplaced_run::of_shard(shard) {
        Some(run) => Err(error::run_on_shard(shard, run)),
        None => Ok(()),
    }
}
