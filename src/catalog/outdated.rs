//! A master that was restored to a time before a cutover: if a shard knows a decision that the master does not, the
//! master routes no writes in that keyspace, and nothing uses its routes there.

use super::shard_decision;
use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
#[error(
    "keyspace \"{keyspace}\" is not routed for writing: shard \"{shard}\" records that split {split} has moved keys from \"{from}\" to \"{to}\", and this master does not know it"
)]
pub struct Outdated {
    keyspace: String,
    shard: String,
    split: i64,
    from: String,
    to: String,
}

/// The hint that says what to do about it.
pub const ADOPT: &str = "This master was restored to an earlier time. SELECT * FROM shard_adopt(dry_run => true) shows what the shards record; without dry_run it is adopted.";

impl From<Outdated> for Failure {
    fn from(outdated: Outdated) -> Failure {
        Failure::new(SqlState::NOT_IN_STATE, outdated.to_string()).hint(ADOPT)
    }
}

/// Refuses a keyspace for which a shard knows more decisions, except for a route that an operator sets by force if no
/// shard knows the keys of those decisions: then the operator finds their rows and sets their routes.
pub fn require_current_or_named(keyspace: &str) -> Result<(), Outdated> {
    if shard_decision::is_here() && shard_decision::keys_are_unknown(keyspace) {
        Ok(())
    } else {
        require_current(keyspace)
    }
}

/// Refuses a keyspace for which a shard knows more decisions.
pub fn require_current(keyspace: &str) -> Result<(), Outdated> {
    if !shard_decision::is_here() {
        return Ok(());
    }
    match shard_decision::lost_of(keyspace) {
        None => Ok(()),
        Some((shard, lost)) => Err(Outdated {
            keyspace: keyspace.to_owned(),
            shard,
            split: lost.split_id,
            from: lost.from_shard,
            to: lost.to_shard,
        }),
    }
}
