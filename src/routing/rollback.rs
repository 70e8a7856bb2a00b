//! Rollback to an earlier routing, as a new version that is equal to it.

use super::assign::check_takes_keys;
use super::change::replace;
use super::{after_start, error, name_list};
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::routing::{RoutedEntries, RoutingChange};
use crate::catalog::shard::{self, TopologyError};
use crate::catalog::{in_use, routing_history};
use crate::error::Failure;
use std::collections::BTreeSet;

/// Requires an existing version, or 0, the empty routing.
pub fn check_version(keyspace: &Keyspace, version: i64) -> Result<(), Failure> {
    if (0..=keyspace::version(&keyspace.name)).contains(&version) {
        return Ok(());
    }
    Err(error::unknown_version(&keyspace.name, version))
}

pub fn rollback(version: i64, keyspace: &str) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    check_version(&keyspace, version)?;
    let difference = routing_history::difference(&keyspace.name, version);
    if difference.is_empty() {
        return Ok(keyspace::version(&keyspace.name));
    }
    let keys: Vec<String> = difference.iter().map(|(key, _)| key.clone()).collect();
    if let Some((split, key)) = in_use::split_of_keys(&keyspace.name, &keys) {
        return Err(error::key_in_split(&key, split));
    }
    let moved = routing_history::moved_by_split_since(&keyspace.name, &keys, version);
    if !moved.is_empty() {
        let keys = name_list(moved.iter().map(String::as_str));
        return Err(error::moved_since(version, &keys));
    }
    let (back, shards): (Vec<String>, Vec<String>) =
        difference.into_iter().filter_map(|(key, shard)| shard.map(|shard| (key, shard))).unzip();
    for shard_key in shards.iter().collect::<BTreeSet<_>>() {
        check_shard_of_old_policy(shard_key, version)?;
    }
    let reason = format!("rollback to version {version}");
    let change = RoutingChange { reason: Some(&reason), unassigns: true, ..RoutingChange::default() };
    replace(&keyspace, &keys, RoutedEntries { names: &back, shards: &shards }, change)
}

fn check_shard_of_old_policy(shard_key: &str, version: i64) -> Result<(), Failure> {
    let shard = match shard::by_key(shard_key) {
        Err(TopologyError::Unknown(shard)) => return Err(error::shard_gone(version, &shard)),
        other => other?,
    };
    check_takes_keys(&shard)
}
