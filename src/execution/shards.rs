//! The shards of an execution: how they are reached, and whether a statement may begin there.

use super::error::ExecutionError;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, Execution};
use crate::catalog::{in_use, misplaced_run, shard};
use crate::error::Failure;
use crate::query::login::{self, Entrance, LoginWay};
use crate::query::run::chosen;
use crate::server::txn::in_one;
use pgrx::pg_sys;
use std::time::Duration;

/// With the caller's login on shards by their names; of one in two phases with that of whoever has begun it, since a
/// prepared transaction is ended by whoever has made it.
pub fn ways(execution: &Execution, shards: &[String], timeout: Duration) -> Result<Vec<LoginWay>, Failure> {
    Caller::as_owner(|caller| {
        let role = if execution.two_phase { beginner(execution.id)? } else { login::role_of(caller)? };
        chosen(Some(shards))?.iter().map(|shard| login::entrance(&role, shard, timeout)).collect()
    })
}

/// How a shard is reached for what is left there of one in two phases, also where it is disabled. In a session's
/// transaction, or a worker's own.
pub fn ways_back(id: i64, shards: &[String], timeout: Duration) -> Vec<Result<LoginWay, Failure>> {
    let known: Vec<Result<(Entrance, String), Failure>> = in_one(|| {
        Caller::as_owner(|_| {
            let role = beginner(id);
            let entrance = |name: &String| {
                let role = role.clone()?;
                let shard = shard::by_key(name)?;
                login::known(&role, &shard).map(|entrance| (entrance, role.1))
            };
            shards.iter().map(entrance).collect()
        })
    });
    let way = |(entrance, role): (Entrance, String)| login::way(entrance, &role, timeout);
    known.into_iter().map(|known| known.map(way)).collect()
}

/// Before one in two phases runs once more: whoever has it go on has the logins with which it was begun. To end what is
/// left of it these are used without asking.
pub fn require_beginners_login(id: i64) -> Result<(), Failure> {
    Caller::as_owner(|caller| {
        if caller.is_superuser() {
            return Ok(());
        }
        let (has, began) = (login::role_of(caller)?, beginner(id)?);
        if has.0 == began.0 {
            Ok(())
        } else {
            Err(ExecutionError::OtherBeginner { id, role: began.1, has: has.1 }.into())
        }
    })
}

fn beginner(id: i64) -> Result<(pg_sys::Oid, String), Failure> {
    execution::login_role(id).ok_or_else(|| ExecutionError::NobodyIsLeft(id).into())
}

/// A split that is under way counts on its tables to stay as they are.
pub fn require_no_split(shard: &str) -> Result<(), Failure> {
    match in_use::split_under_way(shard) {
        Some(split) => Err(ExecutionError::Split { split, shard: shard.to_owned() }.into()),
        None => Ok(()),
    }
}

/// Nor does what moves rows from or to it expect its tables to become others.
pub fn require_no_run(shard: &str) -> Result<(), Failure> {
    match misplaced_run::of_shard(shard) {
        Some(run) => Err(ExecutionError::Run { run, shard: shard.to_owned() }.into()),
        None => Ok(()),
    }
}
