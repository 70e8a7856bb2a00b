//! Ranges: assigning, cutting and joining them. An entry's range never changes; other entries replace it, in one
//! version.

use super::assign::{check_not_in_split, check_takes_keys};
use super::change::replace;
use super::{after_start, error, name_list};
use crate::catalog::keyspace::{self, Keyspace, LockedKeyspace};
use crate::catalog::routing::{self, RangeEntry, RoutedEntries, RoutingChange};
use crate::catalog::{in_use, misplaced_run, shard};
use crate::error::Failure;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;

/// Returns the type by which the keyspace's ranges are ordered.
pub fn order(keyspace: &Keyspace) -> Result<Ordered, Failure> {
    keyspace.strategy.order().ok_or_else(|| error::other_strategy(keyspace))
}

/// Entries that end, and those that replace them.
#[derive(Default)]
struct Exchange {
    old: Vec<String>,
    new: Vec<(String, String)>,
}

impl Exchange {
    fn carry_out(self, keyspace: &LockedKeyspace, change: RoutingChange<'_>) -> Result<i64, Failure> {
        if self.old.is_empty() && self.new.is_empty() {
            return Ok(keyspace::version(&keyspace.name));
        }
        check_not_in_split(&keyspace.name, &self.old)?;
        let (names, shards): (Vec<String>, Vec<String>) = self.new.into_iter().unzip();
        replace(keyspace, &self.old, RoutedEntries { names: &names, shards: &shards }, change)
    }
}

/// Routes an interval to the shard. Ranges that lie across its bounds are cut there.
pub fn assign(
    lower: Option<&str>,
    upper: Option<&str>,
    shard_key: &str,
    keyspace: &str,
    force: bool,
    reason: Option<&str>,
) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    let of = order(&keyspace)?;
    let shard = shard::by_key(shard_key)?;
    check_takes_keys(&shard)?;
    let wanted = Interval::new(keyspace.key_type(), lower, upper)?;
    let there = routing::ranges(&keyspace.name, of, &wanted);
    let names: Vec<String> = there.iter().map(|entry| entry.name.clone()).collect();
    check_not_in_split(&keyspace.name, &names)?;
    let elsewhere: Vec<&RangeEntry> = there.iter().filter(|entry| entry.shard != shard_key).collect();
    if !force && !elsewhere.is_empty() {
        let names = elsewhere.iter().map(|entry| entry.name.as_str());
        return Err(error::routed_elsewhere(&name_list(names)));
    }
    if elsewhere.is_empty() && covers_entries(&there, &wanted, of) {
        return Ok(keyspace::version(&keyspace.name));
    }
    let change = RoutingChange { reason, is_forced: force, ..RoutingChange::default() };
    route_there(&wanted, of, there, shard_key).carry_out(&keyspace, change)
}

/// Routes a range to the shard because of a shard's record; its parts may lead to any shard by now.
pub fn adopt(
    keyspace: &LockedKeyspace,
    wanted: &Interval,
    shard_key: &str,
    change: RoutingChange<'_>,
) -> Result<i64, Failure> {
    let of = order(keyspace)?;
    let there = routing::ranges(&keyspace.name, of, wanted);
    route_there(wanted, of, there, shard_key).carry_out(keyspace, change)
}

/// Returns the exchange that routes the interval to the shard; the rest of each range keeps its shard.
fn route_there(wanted: &Interval, of: Ordered, there: Vec<RangeEntry>, shard_key: &str) -> Exchange {
    let mut exchange = Exchange::default();
    for entry in there {
        for part in entry.interval.without(wanted, of) {
            exchange.new.push((part.name(of), entry.shard.clone()));
        }
        exchange.old.push(entry.name);
    }
    exchange.new.push((wanted.name(of), shard_key.to_owned()));
    exchange
}

fn covers_entries(entries: &[RangeEntry], wanted: &Interval, of: Ordered) -> bool {
    let intervals: Vec<Interval> = entries.iter().map(|entry| entry.interval.clone()).collect();
    covers(&intervals, wanted, of)
}

/// Whether ranges, in their order, cover the whole interval.
pub fn covers(ranges: &[Interval], wanted: &Interval, of: Ordered) -> bool {
    let mut left = vec![wanted.clone()];
    for range in ranges {
        left = left.iter().flat_map(|part| part.without(range, of)).collect();
    }
    left.is_empty()
}

/// Cuts ranges so that the interval is made of whole ones, and returns their names. It is an error if a part of it is
/// not assigned, or not on the shard.
pub fn carve(keyspace: &LockedKeyspace, wanted: &Interval, shard_key: &str) -> Result<Vec<String>, Failure> {
    let of = order(keyspace)?;
    let there = routing::ranges(&keyspace.name, of, wanted);
    if !covers_entries(&there, wanted, of) {
        return Err(error::unknown_range(&keyspace.name, &wanted.name(of)));
    }
    let elsewhere: Vec<&str> =
        there.iter().filter(|entry| entry.shard != shard_key).map(|entry| entry.name.as_str()).collect();
    if !elsewhere.is_empty() {
        return Err(error::routed_elsewhere(&name_list(elsewhere)));
    }
    let mut names = Vec::new();
    let mut exchange = Exchange::default();
    for entry in there {
        let outside = entry.interval.without(wanted, of);
        let Some(inside) = entry.interval.intersection(wanted, of) else { continue };
        names.push(inside.name(of));
        if !outside.is_empty() {
            exchange.old.push(entry.name);
            for part in outside.into_iter().chain([inside]) {
                exchange.new.push((part.name(of), entry.shard.clone()));
            }
        }
    }
    let reason = format!("divided at {}", wanted.name(of));
    exchange.carry_out(keyspace, RoutingChange { reason: Some(&reason), ..RoutingChange::default() })?;
    Ok(names)
}

/// Joins adjacent ranges of the interval that are on the same shard.
pub fn join(keyspace: &str, lower: Option<&str>, upper: Option<&str>) -> Result<i64, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    let of = order(&keyspace)?;
    let within = Interval::new(keyspace.key_type(), lower, upper)?;
    let held = in_use::entries_of_splits(&keyspace.name);
    let by_rows = misplaced_run::held_entries(&keyspace.name);
    let mut exchange = Exchange::default();
    let mut run: Vec<RangeEntry> = Vec::new();
    for entry in routing::ranges(&keyspace.name, of, &within) {
        // Ranges that a split moves stay as they are, and those that rows are moved to.
        let is_free = !held.contains(&entry.name)
            && by_rows.iter().all(|other| other.as_ref().is_some_and(|other| *other != entry.name));
        let touches = run.last().is_some_and(|last| {
            last.shard == entry.shard
                && last.interval.upper.is_some()
                && last.interval.upper == entry.interval.lower
        });
        if !(is_free && touches) {
            exchange.join(std::mem::take(&mut run), of);
        }
        if is_free {
            run.push(entry);
        }
    }
    exchange.join(run, of);
    exchange.carry_out(&keyspace, RoutingChange { reason: Some("ranges joined"), ..RoutingChange::default() })
}

impl Exchange {
    fn join(&mut self, run: Vec<RangeEntry>, of: Ordered) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        if run.len() < 2 {
            return;
        }
        let joined = Interval { lower: first.interval.lower.clone(), upper: last.interval.upper.clone() };
        self.new.push((joined.name(of), first.shard.clone()));
        self.old.extend(run.into_iter().map(|entry| entry.name));
    }
}
