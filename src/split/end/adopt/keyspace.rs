//! The decisions that shards know of one keyspace, taken over as one more version of its routing.

use super::call::{AdoptCall, AskedShards};
use super::fate::{self, DecisionFate};
use super::merge::Lost;
use super::routes::{Becomes, RouteStep, Routes, canonical};
use super::row::AdoptRow;
use crate::catalog::keyspace::{self, Keyspace, LockedKeyspace};
use crate::catalog::routing::{RoutedEntries, RoutingChange};
use crate::catalog::{shard_decision, split};
use crate::error::Failure;
use crate::keys::interval::Interval;
use crate::routing::{change, ranges};
use std::fmt::Write;

/// What happens to the decisions of a keyspace.
#[derive(Default)]
struct AdoptOutcome<'a> {
    taken: Vec<&'a Lost>,
    kept: Vec<&'a Lost>,
}

/// Returns the rows of a keyspace, in the order of its decisions.
pub fn take_over(
    name: &str,
    all: &[&Lost],
    asked: &AskedShards,
    call: AdoptCall<'_>,
) -> Result<Vec<AdoptRow>, Failure> {
    let Ok(found) = keyspace::find(name) else {
        let why = "not adopted: this master has no such keyspace: add it with shard_keyspace_add(), then call shard_adopt() again";
        return Ok(all.iter().map(|lost| AdoptRow::of(lost, why)).collect());
    };
    let locked = if call.dry_run { None } else { Some(keyspace::lock(name)?) };
    let (mut rows, mut outcome, mut routes) = (Vec::new(), AdoptOutcome::default(), Routes::of(&found));
    for (lost, at) in all.iter().copied().zip(1..) {
        let later = all.get(at..).unwrap_or_default();
        let why = match fate::of(&found, lost, later, asked, call.keep_routes) {
            DecisionFate::Waits(why) => why,
            DecisionFate::Kept => {
                rows.push(AdoptRow::of(
                    lost,
                    if call.dry_run { "its keys are to stay" } else { "its keys stay" },
                ));
                outcome.kept.push(lost);
                continue;
            }
            DecisionFate::Taken => match routes.take(lost) {
                Ok(()) => {
                    outcome.taken.push(lost);
                    continue;
                }
                Err(why) => why,
            },
        };
        rows.push(AdoptRow::of(lost, &format!("not adopted: {why}")));
    }
    let steps = routes.steps();
    rows.extend(steps.iter().map(|step| row(step, call.dry_run)));
    if let Some(locked) = locked {
        apply(&locked, &steps, &outcome)?;
    }
    Ok(rows)
}

fn row(step: &RouteStep<'_>, dry_run: bool) -> AdoptRow {
    let mut action = match step.becomes {
        Becomes::IsThere => "is already routed there".to_owned(),
        Becomes::MovedOn(split) => format!("stays: split {split} has moved it later, as this master knows"),
        Becomes::NoShard => "stays: it has moved on from there".to_owned(),
        Becomes::Routed if dry_run => "is to be routed there".to_owned(),
        Becomes::Routed => "is routed there now".to_owned(),
    };
    if step.becomes == Becomes::Routed && !step.lost.is_certain {
        let _ = write!(
            action,
            ", and shard \"{}\" no longer knows it: look for the rows with shard_misplaced()",
            step.lost.decision.to_shard
        );
    }
    let mut told = AdoptRow::of(step.lost, &action);
    told.key = Some(step.key.clone());
    told.routed_to.clone_from(&step.now);
    told
}

/// Applies the decisions. Versions and split numbers that shards know are never given out again.
fn apply(
    keyspace: &LockedKeyspace,
    steps: &[RouteStep<'_>],
    outcome: &AdoptOutcome<'_>,
) -> Result<(), Failure> {
    let done: Vec<&Lost> = outcome.taken.iter().chain(&outcome.kept).copied().collect();
    let Some(last) = done.iter().map(|lost| lost.decision.version).max() else { return Ok(()) };
    let splits: Vec<String> = done.iter().map(|lost| lost.decision.split_id.to_string()).collect();
    let reason = format!("adopted from the shards: decisions of splits {}", splits.join(", "));
    let moved_by = outcome.taken.iter().map(|lost| lost.decision.split_id).max();
    let change = || RoutingChange {
        reason: Some(&reason),
        version: Some(last + 1),
        adopts: true,
        moved_by,
        ..RoutingChange::default()
    };
    for lost in &outcome.taken {
        shard_decision::adopted(&lost.decision, false);
    }
    for lost in &outcome.kept {
        shard_decision::adopted(&lost.decision, true);
    }
    for lost in &done {
        split::pass(lost.decision.split_id);
    }
    let changed: Vec<&RouteStep<'_>> = steps.iter().filter(|step| step.becomes == Becomes::Routed).collect();
    match keyspace.strategy.order() {
        Some(_) => adopt_ranges(keyspace, steps, outcome, change)?,
        None if !changed.is_empty() => {
            let keys: Vec<String> = changed.iter().map(|step| step.key.clone()).collect();
            let shards: Vec<String> =
                changed.iter().map(|step| step.lost.decision.to_shard.clone()).collect();
            change::replace(keyspace, &keys, RoutedEntries { names: &keys, shards: &shards }, change())?;
        }
        None => {}
    }
    if keyspace::version(&keyspace.name) <= last {
        change::replace(keyspace, &[], RoutedEntries::default(), change())?;
    }
    Ok(())
}

/// Applies one decision after the other, since each may have cut the ranges of those before it. This includes
/// decisions that were taken over earlier and come after these.
fn adopt_ranges<'a>(
    keyspace: &LockedKeyspace,
    steps: &[RouteStep<'_>],
    outcome: &AdoptOutcome<'_>,
    change: impl Fn() -> RoutingChange<'a>,
) -> Result<(), Failure> {
    let Some(of) = keyspace.strategy.order() else { return Ok(()) };
    let Some(first) = outcome.taken.iter().map(|lost| lost.decision.version).min() else { return Ok(()) };
    let mut all: Vec<(i64, String, String)> = steps
        .iter()
        .filter(|step| matches!(step.becomes, Becomes::Routed | Becomes::IsThere))
        .map(|step| (step.lost.decision.version, step.key.clone(), step.lost.decision.to_shard.clone()))
        .collect();
    for decision in shard_decision::adopted_after(&keyspace.name, first) {
        if outcome.taken.iter().any(|lost| lost.decision.is_of_same_split(&decision)) {
            continue;
        }
        let keys = canonical(keyspace, decision.keys.as_deref().unwrap_or_default());
        all.extend(keys.into_iter().map(|key| (decision.version, key, decision.to_shard.clone())));
    }
    all.sort_by_key(|(version, ..)| *version);
    for (at, (_, key, shard)) in all.iter().enumerate() {
        // The key was moved on, perhaps from a shard that was dropped since.
        if all.iter().skip(at + 1).any(|(_, later, _)| later == key) {
            continue;
        }
        let Some(range) = Interval::parse(key, of) else { continue };
        if !is_all_there(keyspace, &range, shard) {
            ranges::adopt(keyspace, &range, shard, change())?;
        }
    }
    Ok(())
}

fn is_all_there(keyspace: &Keyspace, range: &Interval, shard: &str) -> bool {
    let Some(of) = keyspace.strategy.order() else { return false };
    let there = crate::catalog::routing::ranges(&keyspace.name, of, range);
    let parts: Vec<Interval> = there.iter().map(|entry| entry.interval.clone()).collect();
    there.iter().all(|entry| entry.shard == shard) && ranges::covers(&parts, range, of)
}
