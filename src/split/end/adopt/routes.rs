//! The routes of keys after several decisions, one after the other, and what splits of this master that did not know
//! them have done meanwhile.

use super::merge::Lost;
use super::{fate, own};
use crate::catalog::keyspace::Keyspace;
use crate::catalog::shard_decision::{self, Decision, MovedHere};
use crate::catalog::{routing, shard};
use crate::keys::interval::Interval;
use crate::keys::strategy::Strategy;
use std::collections::{BTreeMap, BTreeSet};

/// The routes as they would be, once what was taken so far is applied.
pub struct Routes<'a> {
    keyspace: &'a Keyspace,
    /// What the decisions have moved, in their order.
    taken: Vec<(&'a Lost, Vec<String>)>,
    /// Keys that a split of this master has moved on from where the last decision has moved them.
    moved_on: BTreeMap<String, i64>,
}

/// A key that a decision has moved, and what happens to its route.
pub struct RouteStep<'a> {
    pub lost: &'a Lost,
    pub key: String,
    pub now: Option<String>,
    pub becomes: Becomes,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Becomes {
    Routed,
    IsThere,
    /// The key was moved on by a split of this master, or by a decision that was taken over before.
    MovedOn(i64),
    /// The shard was dropped: a later decision, which waits, has moved the key on.
    NoShard,
}

impl<'a> Routes<'a> {
    pub fn of(keyspace: &'a Keyspace) -> Routes<'a> {
        Routes { keyspace, taken: Vec::new(), moved_on: BTreeMap::new() }
    }

    /// Adds a decision, unless a split of this master that did not know of it has moved one of its keys: the key's
    /// rows may be on either shard then.
    pub fn take(&mut self, lost: &'a Lost) -> Result<(), String> {
        let keys = canonical(self.keyspace, lost.decision.keys.as_deref().unwrap_or_default());
        let names = own::entries(self.keyspace, &keys);
        let now = routing::current(&self.keyspace.name, &names);
        let moved = shard_decision::moved_here(&lost.decision, &names);
        let Decision { from_shard, to_shard, .. } = &lost.decision;
        let is_unaware = |moved: &&MovedHere| {
            let is_elsewhere = |now: &String| now != to_shard && (now != from_shard || moved.is_later);
            !moved.is_behind && !self.has(&moved.key) && now.get(&moved.key).is_some_and(is_elsewhere)
        };
        if let Some(MovedHere { key, split, .. }) = moved.iter().find(is_unaware) {
            let at = now.get(key).map(String::as_str).unwrap_or_default();
            return Err(format!(
                "split {split} of this master, which did not know of it, has moved \"{key}\" to \"{at}\": {}",
                fate::by_rows(lost)
            ));
        }
        let behind: BTreeMap<String, i64> =
            moved.into_iter().filter(|moved| moved.is_behind).map(|moved| (moved.key, moved.split)).collect();
        for key in &keys {
            let entries = own::entries(self.keyspace, std::slice::from_ref(key));
            let splits: Vec<i64> = entries.iter().filter_map(|entry| behind.get(entry).copied()).collect();
            match splits.first() {
                None => self.moved_on.remove(key),
                Some(split) if splits.len() == entries.len() => self.moved_on.insert(key.clone(), *split),
                Some(split) => {
                    let part = format!("split {split} of this master has moved a part of \"{key}\" later");
                    return Err(format!("{part}: {}", fate::by_rows(lost)));
                }
            };
        }
        self.taken.push((lost, keys));
        Ok(())
    }

    /// Whether a taken decision has the key, or a part of the range.
    fn has(&self, key: &str) -> bool {
        let mut all = self.taken.iter().flat_map(|(_, keys)| keys);
        match self.keyspace.strategy.order() {
            None => all.any(|taken| taken == key),
            Some(of) => {
                let Some(range) = Interval::parse(key, of) else { return false };
                let is_cut = |taken: &String| {
                    Interval::parse(taken, of).is_some_and(|taken| taken.intersection(&range, of).is_some())
                };
                all.any(is_cut)
            }
        }
    }

    /// Returns for each key the last decision that has it; of ranges, which may be cut differently each time, all of
    /// them in their order.
    pub fn steps(self) -> Vec<RouteStep<'a>> {
        let Routes { keyspace, taken, moved_on: by_splits } = self;
        let shards: BTreeSet<String> = shard::all().into_iter().map(|shard| shard.shard_key).collect();
        if keyspace.strategy.order().is_some() {
            let mut steps: Vec<RouteStep<'a>> =
                taken.into_iter().flat_map(|(lost, keys)| of_ranges(keyspace, lost, keys, &shards)).collect();
            moved_on(keyspace, &mut steps, &[], &by_splits);
            return steps;
        }
        let first = taken.iter().map(|(lost, _)| lost.decision.version).min().unwrap_or(i64::MAX);
        let adopted = shard_decision::adopted_after(&keyspace.name, first);
        let mut last: BTreeMap<String, &'a Lost> = BTreeMap::new();
        for (lost, keys) in taken {
            last.extend(keys.into_iter().map(|key| (key, lost)));
        }
        let keys: Vec<String> = last.keys().cloned().collect();
        let current = routing::current(&keyspace.name, &keys);
        let mut steps: Vec<RouteStep<'a>> = last
            .into_iter()
            .map(|(key, lost)| step(lost, current.get(&key).cloned(), key, &shards))
            .collect();
        moved_on(keyspace, &mut steps, &adopted, &by_splits);
        steps
    }
}

fn step<'a>(lost: &'a Lost, now: Option<String>, key: String, shards: &BTreeSet<String>) -> RouteStep<'a> {
    let is_there = now.as_ref() == Some(&lost.decision.to_shard);
    let becomes = match is_there {
        true => Becomes::IsThere,
        false if shards.contains(&lost.decision.to_shard) => Becomes::Routed,
        false => Becomes::NoShard,
    };
    RouteStep { lost, key, now, becomes }
}

/// Marks those that this master has already moved on from where they are to be routed.
fn moved_on(
    keyspace: &Keyspace,
    steps: &mut [RouteStep<'_>],
    adopted: &[Decision],
    by_splits: &BTreeMap<String, i64>,
) {
    let mut by_adopted: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for decision in adopted {
        let keys = canonical(keyspace, decision.keys.as_deref().unwrap_or_default());
        by_adopted.extend(keys.into_iter().map(|key| (key, (decision.version, decision.split_id))));
    }
    for step in steps.iter_mut().filter(|step| step.becomes == Becomes::Routed) {
        let later = by_adopted.get(&step.key).filter(|(version, _)| *version > step.lost.decision.version);
        let split = later.map(|(_, split)| *split).or_else(|| by_splits.get(&step.key).copied());
        if let Some(split) = split {
            step.becomes = Becomes::MovedOn(split);
        }
    }
}

fn of_ranges<'a>(
    keyspace: &Keyspace,
    lost: &'a Lost,
    keys: Vec<String>,
    shards: &BTreeSet<String>,
) -> Vec<RouteStep<'a>> {
    let Some(of) = keyspace.strategy.order() else { return Vec::new() };
    let step = |key: String| {
        let range = Interval::parse(&key, of)?;
        let there = routing::ranges(&keyspace.name, of, &range);
        let at: BTreeSet<String> = there.into_iter().map(|entry| entry.shard).collect();
        let now = at.into_iter().collect::<Vec<_>>().join(", ");
        Some(self::step(lost, Some(now).filter(|now| !now.is_empty()), key, shards))
    };
    keys.into_iter().filter_map(step).collect()
}

/// Returns the entries under this master's names: only those that its keyspace can have.
pub fn canonical(keyspace: &Keyspace, keys: &[String]) -> Vec<String> {
    match keyspace.strategy {
        Strategy::Directory => {
            keys.iter().map(|key| keyspace.key_type().canonical(key).into_owned()).collect()
        }
        Strategy::Hash { buckets, .. } => {
            let is_one = |key: &&String| key.parse::<u32>().is_ok_and(|bucket| bucket < buckets.get());
            keys.iter().filter(is_one).cloned().collect()
        }
        Strategy::Range { of } => {
            keys.iter().filter_map(|key| Interval::parse(key, of)).map(|range| range.name(of)).collect()
        }
    }
}
