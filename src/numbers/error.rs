//! The reasons why sequences are not spread.

use crate::error::{Failure, SqlState};

pub fn no_tables(keyspace: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("keyspace \"{keyspace}\" has no sharded tables"))
        .hint("Add its tables with shard_table_add() first.")
}

pub fn no_shards() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "no shard holds rows").hint("Add the first one with shard_add().")
}

/// Has the SQLSTATE and the hint of the first problem, and all of them in its detail.
pub fn cannot_be_spread(keyspace: &str, first: &Failure, all: &[Failure]) -> Failure {
    let all: Vec<&str> = all.iter().map(|problem| problem.message.as_str()).collect();
    Failure {
        message: format!("sequences of keyspace \"{keyspace}\" cannot be spread: {first}"),
        detail: Some(all.join("; ")),
        ..first.clone()
    }
}

pub fn no_block(keyspace: &str, below: i64) -> Failure {
    let message = format!("no block of numbers is left below {below} for keyspace \"{keyspace}\"");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Call shard_sequences_spread() with smaller blocks, or with a greater bound.")
}

/// A client has drawn numbers of the block before the sequence was given it.
pub fn drawn(shard: &str, sequence: &str, last: &str, first: i64) -> Failure {
    let message = format!(
        "shard \"{shard}\": sequence {sequence} has reached {last} meanwhile, and its block begins with {first}"
    );
    Failure::new(SqlState::NOT_IN_STATE, message).hint("Call shard_sequences_spread() again.")
}
