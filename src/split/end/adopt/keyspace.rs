//! What shards know of one keyspace, taken over as one more version of its routing.

use super::merge::Lost;
use super::own;
use super::row::Row;
use crate::catalog::keyspace::{self, Keyspace, Locked};
use crate::catalog::routing::{self, Change};
use crate::catalog::shard;
use crate::catalog::shard_decision::{self, Decision};
use crate::error::Failure;
use crate::keys::interval::Interval;
use crate::keys::strategy::Strategy;
use crate::remote::quote::literal;
use crate::routing::{change, ranges};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Versions that a master may have lost. A number further ahead would use up those that are left.
const MOST_LOST: i64 = 1_000_000;

/// What becomes of a decision.
enum Fate {
    /// Its keys are routed by it, unless a later one has them.
    Taken,
    /// Its keys are not known, or not where they are by now.
    Noted(String),
    /// Something is to be done first: until then it holds the keyspace up.
    Waits(String),
}

/// A key that is to be routed by a decision.
struct Goes<'a> {
    lost: &'a Lost,
    key: String,
}

/// The rows of a keyspace, in the order of its decisions. `asked`: the shards that have answered this call.
pub fn take_over(
    name: &str,
    all: &[&Lost],
    asked: &BTreeSet<String>,
    dry_run: bool,
) -> Result<Vec<Row>, Failure> {
    let Ok(found) = keyspace::find(name) else {
        let why = "not taken over: this master has no such keyspace: add it with shard_keyspace_add(), then call shard_adopt() again";
        return Ok(all.iter().map(|lost| Row::of(lost, why)).collect());
    };
    let locked = if dry_run { None } else { Some(keyspace::lock(name)?) };
    let mut rows = Vec::new();
    let (mut goes, mut done) = (BTreeMap::new(), Vec::new());
    for lost in all {
        match fate(&found, lost, asked) {
            Fate::Waits(why) => rows.push(Row::of(lost, &why)),
            Fate::Noted(why) => {
                rows.push(Row::of(lost, &why));
                done.push(*lost);
            }
            Fate::Taken => {
                for key in canonical(&found, lost.decision.keys.as_deref().unwrap_or_default()) {
                    goes.insert(key.clone(), Goes { lost, key });
                }
                done.push(*lost);
            }
        }
    }
    let goes: Vec<Goes<'_>> = goes.into_values().collect();
    let changed = plan_routes(&found, &goes, &mut rows, dry_run);
    if let Some(locked) = locked {
        apply(&locked, &changed, &done)?;
    }
    Ok(rows)
}

const BY_ROWS: &str =
    "not routed: find the rows with shard_misplaced() and shard_unassigned(), then assign their keys";

fn fate(keyspace: &Keyspace, lost: &Lost, asked: &BTreeSet<String>) -> Fate {
    let decision = &lost.decision;
    let Some(keys) = &decision.keys else {
        return Fate::Noted(format!(
            "{} entries, which no shard knows any more: {BY_ROWS}",
            decision.key_count
        ));
    };
    let in_the_way = none_of_keyspace(keyspace, decision)
        .or_else(|| own::lost_of_plan(decision))
        .or_else(|| not_asked(lost, asked))
        .or_else(|| own::holder(&keyspace.name, keys));
    match in_the_way {
        Some(why) => Fate::Waits(format!("not taken over: {why}")),
        None => Fate::Taken,
    }
}

/// What no cutover of this keyspace can have said.
fn none_of_keyspace(keyspace: &Keyspace, decision: &Decision) -> Option<String> {
    let known = keyspace::version(&keyspace.name);
    if decision.version <= 0 || decision.version > known.saturating_add(MOST_LOST) {
        return Some(format!(
            "routing version {} is none of keyspace \"{}\", which is at {known}",
            decision.version, keyspace.name
        ));
    }
    if Strategy::of_entries(&decision.entries).map(Strategy::kind) != Some(keyspace.strategy.kind()) {
        return Some(format!(
            "keyspace \"{}\" is of strategy \"{}\" here, and was of another one",
            keyspace.name,
            keyspace.strategy.name()
        ));
    }
    None
}

/// The shard that the keys have moved to may have moved them on. Until it has said that it has not, nobody is sent
/// there, and nobody where they were. Nobody is sent to one that is disabled.
fn not_asked(lost: &Lost, asked: &BTreeSet<String>) -> Option<String> {
    let to = &lost.decision.to_shard;
    match shard::by_key(to) {
        Err(_) => Some(format!("this master has no shard \"{to}\": add it, then call shard_adopt() again")),
        Ok(shard) if lost.is_certain || asked.contains(to) || !shard.is_active() => None,
        Ok(_) => Some(format!(
            "shard \"{to}\" may have moved them on, and was not asked: call shard_adopt() once it answers, or disable it first: SELECT shard_set_status({}, 'disabled')",
            literal(to)
        )),
    }
}

/// As this master names the entries: only those that its keyspace can have.
fn canonical(keyspace: &Keyspace, keys: &[String]) -> Vec<String> {
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

/// Those whose routes change, with a row for each key.
fn plan_routes<'a>(
    keyspace: &Keyspace,
    goes: &'a [Goes<'a>],
    rows: &mut Vec<Row>,
    dry_run: bool,
) -> Vec<&'a Goes<'a>> {
    let keys: Vec<String> = goes.iter().map(|goes| goes.key.clone()).collect();
    let current = routing::current(&keyspace.name, &keys);
    let later: BTreeMap<String, i64> = match goes.iter().map(|goes| goes.lost.decision.version).min() {
        Some(first) => shard_decision::moved_later(&keyspace.name, &keys, first).into_iter().collect(),
        None => BTreeMap::new(),
    };
    let mut changed = Vec::new();
    for goes in goes {
        let decision = &goes.lost.decision;
        let now = match keyspace.strategy.order() {
            Some(of) => Interval::parse(&goes.key, of).map(|range| {
                let there = routing::ranges(&keyspace.name, of, &range);
                let shards: BTreeSet<String> = there.into_iter().map(|entry| entry.shard).collect();
                shards.into_iter().collect::<Vec<_>>().join(", ")
            }),
            None => current.get(&goes.key).cloned(),
        };
        let is_there = now.as_ref() == Some(&decision.to_shard);
        let mut action = match (is_there, later.get(&goes.key), dry_run) {
            (true, _, _) => "is routed there already".to_owned(),
            (false, Some(split), _) => format!("stays: split {split} of this master has moved it later"),
            (false, None, true) => "is to be routed there".to_owned(),
            (false, None, false) => "is routed there now".to_owned(),
        };
        if !is_there && !later.contains_key(&goes.key) {
            changed.push(goes);
            if !goes.lost.is_certain {
                let _ = write!(
                    action,
                    ", and shard \"{}\" knows nothing of it any more: look for the rows with shard_misplaced()",
                    decision.to_shard
                );
            }
        }
        let mut told = Row::of(goes.lost, &action);
        told.key = Some(goes.key.clone());
        told.routed_to = now.filter(|now| !now.is_empty());
        rows.push(told);
    }
    changed
}

/// Versions that shards know are never given out again.
fn apply(keyspace: &Locked, changed: &[&Goes<'_>], done: &[&Lost]) -> Result<(), Failure> {
    let Some(last) = done.iter().map(|lost| lost.decision.version).max() else { return Ok(()) };
    let splits: Vec<String> = done.iter().map(|lost| lost.decision.split_id.to_string()).collect();
    let reason = format!("taken over from the shards: decisions of splits {}", splits.join(", "));
    let change =
        || Change { reason: Some(&reason), version: Some(last + 1), adopts: true, ..Change::default() };
    for lost in done {
        shard_decision::adopted(&lost.decision);
    }
    match keyspace.strategy.order() {
        Some(of) => {
            for goes in changed {
                let Some(range) = Interval::parse(&goes.key, of) else { continue };
                ranges::adopt(keyspace, &range, &goes.lost.decision.to_shard, change())?;
            }
        }
        None if !changed.is_empty() => {
            let keys: Vec<String> = changed.iter().map(|goes| goes.key.clone()).collect();
            let shards: Vec<String> =
                changed.iter().map(|goes| goes.lost.decision.to_shard.clone()).collect();
            change::replace(keyspace, &keys, (&keys, &shards), change())?;
        }
        None => {}
    }
    if keyspace::version(&keyspace.name) <= last {
        change::replace(keyspace, &[], (&[], &[]), change())?;
    }
    Ok(())
}
