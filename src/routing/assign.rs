//! Assignments: routing changes that move no rows.

use super::change::replace;
use super::{after_start, error, name_list};
use crate::catalog::in_use;
use crate::catalog::keyspace::{self, Keyspace, LockedKeyspace};
use crate::catalog::routing::{self, RoutedEntries, RoutingChange};
use crate::catalog::shard::{self, Shard, ShardStatus};
use crate::error::Failure;
use std::collections::HashSet;

/// Returns keys in their canonical form. A NULL, no key at all or a repeated key is an error.
pub fn canonical_keys(keyspace: &Keyspace, keys: Vec<Option<String>>) -> Result<Vec<String>, Failure> {
    let key_type = keyspace.key_type();
    let keys = keys
        .into_iter()
        .map(|key| key.map(|key| key_type.canonical(&key).into_owned()).ok_or_else(error::null_key))
        .collect::<Result<Vec<String>, Failure>>()?;
    if keys.is_empty() {
        return Err(error::invalid("keys", "the list is empty"));
    }
    let mut seen = HashSet::with_capacity(keys.len());
    let mut twice: Vec<&str> = keys.iter().map(String::as_str).filter(|key| !seen.insert(*key)).collect();
    twice.sort_unstable();
    twice.dedup();
    if twice.is_empty() { Ok(keys) } else { Err(error::duplicate_keys(&name_list(twice))) }
}

/// Requires what a shard must be for keys to be routed to it.
pub fn check_takes_keys(shard: &Shard) -> Result<(), Failure> {
    if !shard.holds_rows() {
        return Err(error::holds_no_rows(&shard.shard_key, &shard.kind));
    }
    match shard.status {
        ShardStatus::Active | ShardStatus::Draining => Ok(()),
        ShardStatus::Disabled => Err(error::shard_disabled(&shard.shard_key)),
    }
}

/// Refuses keys that a split moves until it ends.
pub fn check_not_in_split(keyspace: &str, keys: &[String]) -> Result<(), Failure> {
    match in_use::split_of_keys(keyspace, keys) {
        Some((split, key)) => Err(error::key_in_split(&key, split)),
        None => Ok(()),
    }
}

/// Routes the keys to the shard, all in one version. Keys that are there already change nothing; if none changes, the
/// version stays.
pub fn assign(
    keys: Vec<Option<String>>,
    shard_key: &str,
    keyspace: &str,
    force: bool,
    reason: Option<&str>,
) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    check_directory(&keyspace)?;
    let mut keys = canonical_keys(&keyspace, keys)?;
    // Neighbouring keys of the indexes are then written one after the other.
    keys.sort_unstable();
    route(&keyspace, keys, shard_key, force, reason)
}

/// Requires a directory: other strategies do not route single keys.
pub fn check_directory(keyspace: &Keyspace) -> Result<(), Failure> {
    if keyspace.strategy.is_directory() { Ok(()) } else { Err(error::other_strategy(keyspace)) }
}

/// Routes entries, keys or buckets by their names, to the shard.
pub fn route(
    keyspace: &LockedKeyspace,
    keys: Vec<String>,
    shard_key: &str,
    force: bool,
    reason: Option<&str>,
) -> Result<i64, Failure> {
    let shard = shard::by_key(shard_key)?;
    check_takes_keys(&shard)?;
    check_not_in_split(&keyspace.name, &keys)?;
    let current = routing::current(&keyspace.name, &keys);
    if !force {
        let elsewhere = current.iter().filter(|(_, at)| **at != shard_key);
        let mut elsewhere: Vec<&str> = elsewhere.map(|(key, _)| key.as_str()).collect();
        elsewhere.sort_unstable();
        if !elsewhere.is_empty() {
            return Err(error::routed_elsewhere(&name_list(elsewhere)));
        }
    }
    let changed: Vec<String> =
        keys.into_iter().filter(|key| current.get(key).is_none_or(|at| at != shard_key)).collect();
    if changed.is_empty() {
        return Ok(keyspace::version(&keyspace.name));
    }
    let targets = vec![shard_key.to_owned(); changed.len()];
    let change = RoutingChange { reason, is_forced: force, ..RoutingChange::default() };
    replace(keyspace, &changed, RoutedEntries { names: &changed, shards: &targets }, change)
}

/// Removes a key from routing.
pub fn unassign(key: String, keyspace: &str) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    check_directory(&keyspace)?;
    let keys = canonical_keys(&keyspace, vec![Some(key)])?;
    check_not_in_split(&keyspace.name, &keys)?;
    if routing::current(&keyspace.name, &keys).is_empty() {
        return Err(error::unknown_key(&keyspace.name, &keys.concat()));
    }
    replace(&keyspace, &keys, RoutedEntries::default(), RoutingChange::default())
}
