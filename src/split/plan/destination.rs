//! A move that is requested by where the keys are to be: the split that does it, or a new one if none does.

use super::refusals::PlanError;
use super::{PlanRequest, PlannedScope, create, named};
use crate::catalog::shard::{self, Shard};
use crate::catalog::split_state::{Phase, row};
use crate::catalog::{in_use, outdated, routing, split};
use crate::error::Failure;
use crate::routing::{after_start, error};
use std::collections::{BTreeMap, HashMap};

/// Returns the split. Returns None if all keys are there already, and no split holds them any more.
pub fn split_to(
    target: &str,
    names: Vec<Option<String>>,
    keyspace: &str,
) -> std::result::Result<Option<i64>, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    outdated::require_current(&keyspace.name)?;
    let target = shard::by_key(target)?;
    let keys = named(&keyspace, names)?;
    let routed = routing::current(&keyspace.name, &keys);
    if let Some(key) = keys.iter().find(|key| !routed.contains_key(*key)) {
        return Err(error::unknown_key(&keyspace.name, key));
    }
    let away = away_from(&target, &keys, &routed);
    if let Some((open, _)) = in_use::split_of_keys(&keyspace.name, &keys) {
        let plan = split::load(open)?;
        let is_it = plan.target.shard_key == target.shard_key
            && plan.entries.iter().all(|entry| keys.contains(entry))
            && away.values().flatten().all(|key| plan.entries.contains(key));
        if is_it {
            return Ok(Some(open));
        }
        if plan.source.shard_key == target.shard_key && row::read(open)?.phase == Phase::Completed {
            let shard = target.shard_key;
            return Err(PlanError::MovedAway { split: open, shard }.into());
        }
    }
    let mut sources = away.into_iter();
    let Some((source, moving)) = sources.next() else { return Ok(None) };
    let others: Vec<&str> = sources.map(|(source, _)| source).collect();
    if !others.is_empty() {
        return Err(PlanError::SeveralSources(format!("{source}, {}", others.join(", "))).into());
    }
    let what = PlannedScope::Named(moving.into_iter().map(Some).collect());
    let request =
        PlanRequest { source, target: &target.shard_key, what, description: None, keyspace: &keyspace.name };
    create(request).map(Some)
}

/// Returns the keys that are elsewhere, by their shards.
fn away_from<'a>(
    target: &Shard,
    keys: &[String],
    routed: &'a HashMap<String, String>,
) -> BTreeMap<&'a str, Vec<String>> {
    let mut away: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for key in keys {
        if let Some(shard) = routed.get(key).filter(|shard| **shard != target.shard_key) {
            away.entry(shard).or_default().push(key.clone());
        }
    }
    away
}
