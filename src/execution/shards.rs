//! The shards of an execution: how they are reached, and whether a statement may begin there.

use super::error::ExecutionError;
use crate::catalog::caller::Caller;
use crate::catalog::{in_use, misplaced_run};
use crate::error::Failure;
use crate::query::login::{self, Way};
use crate::query::run::chosen;
use std::time::Duration;

/// As the caller's login on shards by their names.
pub fn ways(shards: &[String], timeout: Duration) -> Result<Vec<Way>, Failure> {
    Caller::as_owner(|caller| {
        let role = login::role_of(caller)?;
        chosen(Some(shards))?.iter().map(|shard| login::entrance(&role, shard, timeout)).collect()
    })
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
