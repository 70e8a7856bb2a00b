//! Statements that run on a split's shards, or may have run: until their outcome is known, the structure of its tables
//! is unknown.

use crate::agent::error::{Result, SplitError};
use crate::catalog::execution;
use crate::server::txn::transaction;

/// Requires that there are none. The plan already records its goal, so a later execution sees the split, and is
/// refused.
pub fn require_none(source: &str, target: &str) -> Result<()> {
    let shards = [source.to_owned(), target.to_owned()];
    match transaction(|| execution::of_shards(&shards)) {
        None => Ok(()),
        Some((id, shard)) => {
            Err(SplitError::Retry(format!("execution {id} of a statement on shard \"{shard}\"")))
        }
    }
}
