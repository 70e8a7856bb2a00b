//! The reasons why sequences are not spread.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SpreadError {
    #[error("keyspace \"{0}\" has no sharded tables")]
    NoTables(String),
    #[error("no shard holds rows")]
    NoShards,
    #[error("sequences of keyspace \"{keyspace}\" cannot be spread: {first}")]
    Problems { keyspace: String, first: SpreadProblem, all: Vec<String> },
    #[error("no block of numbers is left below {below} for keyspace \"{keyspace}\"")]
    NoBlock { keyspace: String, below: i64 },
    #[error(
        "shard \"{shard}\": sequence {sequence} has reached {last} meanwhile, and its block begins with {first}"
    )]
    Drawn { shard: String, sequence: String, last: String, first: i64 },
}

/// The reason why one sequence cannot be spread.
#[derive(Debug, Clone)]
pub struct SpreadProblem {
    pub state: SqlState,
    pub text: String,
    pub hint: String,
}

impl std::fmt::Display for SpreadProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<SpreadError> for Failure {
    fn from(error: SpreadError) -> Failure {
        let text = error.to_string();
        match error {
            SpreadError::NoTables(_) => Failure::new(SqlState::NOT_IN_STATE, text)
                .hint("Add its tables with shard_table_add() first."),
            SpreadError::NoShards => {
                Failure::new(SqlState::NOT_IN_STATE, text).hint("Add the first one with shard_add().")
            }
            SpreadError::Problems { first, all, .. } => {
                Failure::new(first.state, text).detail(all.join("; ")).hint(first.hint)
            }
            SpreadError::NoBlock { .. } => Failure::new(SqlState::NOT_IN_STATE, text)
                .hint("Call shard_sequences_spread() with smaller blocks, or with a greater bound."),
            SpreadError::Drawn { .. } => {
                Failure::new(SqlState::NOT_IN_STATE, text).hint("Call shard_sequences_spread() again.")
            }
        }
    }
}
