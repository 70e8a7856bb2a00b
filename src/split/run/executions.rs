//! Statements that run on a split's shards, or may have run: until that is known, nobody can say what its tables are.

use crate::agent::error::{Result, SplitError};
use crate::catalog::execution;
use crate::server::txn::transaction;

/// The plan says by now that it is asked for, so that what begins later sees the split, and is refused.
pub fn require_none(source: &str, target: &str) -> Result<()> {
    let shards = [source.to_owned(), target.to_owned()];
    match transaction(|| execution::of_shards(&shards)) {
        None => Ok(()),
        Some((id, shard)) => {
            Err(SplitError::Retry(format!("execution {id} of a statement on shard \"{shard}\"")))
        }
    }
}
