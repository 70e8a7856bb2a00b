//! Buckets of hash keyspaces: numbers from 0, each routed to a shard.

use super::assign::{self, check_takes_keys};
use super::change::replace;
use super::{after_start, error};
use crate::catalog::keyspace::{Keyspace, LockedKeyspace};
use crate::catalog::routing::{RoutedEntries, RoutingChange};
use crate::catalog::shard;
use crate::error::Failure;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// The greatest number of buckets of a keyspace: each is a row, in every version that changes it.
pub const MAX_BUCKETS: u32 = 65_536;

/// Returns how many buckets the keyspace has.
pub fn count(keyspace: &Keyspace) -> Result<NonZeroU32, Failure> {
    keyspace.strategy.buckets().ok_or_else(|| error::other_strategy(keyspace))
}

/// Returns the canonical names of buckets that a caller gives as text.
pub fn names(keyspace: &Keyspace, given: Vec<String>) -> Result<Vec<String>, Failure> {
    let buckets = count(keyspace)?;
    given
        .into_iter()
        .map(|text| match text.trim().parse::<u32>() {
            Ok(bucket) if bucket < buckets.get() => Ok(bucket.to_string()),
            Ok(_) | Err(_) => Err(error::unknown_bucket(&keyspace.name, &text)),
        })
        .collect()
}

/// Assigns a new keyspace's buckets to the shards in turn, in one version.
pub fn assign_in_turn(keyspace: &LockedKeyspace, shards: &[String]) -> Result<(), Failure> {
    let buckets = count(keyspace)?.get();
    for shard_key in shards.iter().collect::<BTreeSet<_>>() {
        check_takes_keys(&shard::by_key(shard_key)?)?;
    }
    let names: Vec<String> = (0..buckets).map(|bucket| bucket.to_string()).collect();
    let shards: Vec<String> = shards.iter().cycle().take(names.len()).cloned().collect();
    // If shards know more of a keyspace of this name, it is created anew to take that over.
    let change = RoutingChange { reason: Some("keyspace added"), adopts: true, ..RoutingChange::default() };
    replace(keyspace, &[], RoutedEntries { names: &names, shards: &shards }, change).map(|_| ())
}

/// Routes one bucket to the shard.
pub fn assign(
    bucket: i32,
    shard_key: &str,
    keyspace: &str,
    force: bool,
    reason: Option<&str>,
) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    let names = names(&keyspace, vec![bucket.to_string()])?;
    assign::route(&keyspace, names, shard_key, force, reason)
}
