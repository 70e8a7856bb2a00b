//! What happens to a decision that shards know: it is taken over, or something must be done first.

use super::call::AskedShards;
use super::merge::Lost;
use super::own;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::shard_decision::Decision;
use crate::catalog::{shard, table_policy};
use crate::keys::strategy::Strategy;
use crate::remote::quote::literal;
use crate::words::counted;
use std::collections::BTreeSet;

/// The greatest number of versions that a master may have lost. A number further ahead would use up the remaining
/// ones.
const MOST_LOST: i64 = 1_000_000;

/// What happens to a decision.
pub enum DecisionFate {
    /// Its keys are routed by it, unless a later decision has them.
    Taken,
    /// It is recorded from now on, and the routes of its keys stay.
    Kept,
    /// Something must be done first: until then it blocks the keyspace.
    Waits(String),
}

/// Returns what happens to a decision; `later` are the decisions after it.
pub fn of(
    keyspace: &Keyspace,
    lost: &Lost,
    later: &[&Lost],
    asked: &AskedShards,
    keep_routes: &[i64],
) -> DecisionFate {
    let decision = &lost.decision;
    if let Some(why) = not_a_version(keyspace, decision).or_else(|| own::lost_of_plan(decision)) {
        return DecisionFate::Waits(why);
    }
    if keep_routes.contains(&decision.split_id) {
        return DecisionFate::Kept;
    }
    if let Some(why) = of_other_keyspace(keyspace, decision)
        .or_else(|| of_later_one(keyspace, decision))
        .or_else(|| of_other_tables(keyspace, decision))
    {
        return DecisionFate::Waits(why);
    }
    let in_the_way = if have_gone_on(lost, later, asked) {
        None
    } else {
        not_asked(lost, asked).or_else(|| not_known_there(lost, asked))
    };
    match (in_the_way, &decision.keys) {
        (Some(why), _) => DecisionFate::Waits(why),
        (None, None) => DecisionFate::Waits(without_keys(decision)),
        (None, Some(keys)) => match own::holder(keyspace, keys) {
            Some(why) => DecisionFate::Waits(why),
            None => DecisionFate::Taken,
        },
    }
}

/// Refuses a version that no cutover of this keyspace can have had.
fn not_a_version(keyspace: &Keyspace, decision: &Decision) -> Option<String> {
    let known = keyspace::version(&keyspace.name);
    if decision.version <= 0 || decision.version > known.saturating_add(MOST_LOST) {
        return Some(format!(
            "routing version {} does not belong to keyspace \"{}\", which is at {known}",
            decision.version, keyspace.name
        ));
    }
    None
}

/// Refuses a decision of a keyspace that was dropped and created differently under the same name: with another number
/// of buckets a bucket has other keys, and a key of another type is another one.
fn of_other_keyspace(keyspace: &Keyspace, decision: &Decision) -> Option<String> {
    let there = &decision.entries;
    let is_alike = Strategy::of_entries(there) == Some(keyspace.strategy)
        && match (Strategy::keys_of(there), keyspace.key_type) {
            (Some(there), Some(here)) => here.is_written_as(there),
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
    if is_alike {
        return None;
    }
    let entries = keyspace.strategy.entries();
    let here = match (keyspace.strategy, keyspace.key_type) {
        (Strategy::Directory, Some(of)) => format!("{entries} of {}", of.as_str()),
        (Strategy::Directory | Strategy::Hash { .. } | Strategy::Range { .. }, _) => entries,
    };
    let keep = keeping(decision);
    let call = match keyspace.strategy {
        // Its keys would have to be unassigned first, which is not possible while the keyspace is closed.
        Strategy::Directory => format!("{keep} leaves its routes unchanged, and opens it"),
        Strategy::Hash { .. } | Strategy::Range { .. } => {
            format!(
                "drop it and add it so, then call shard_adopt() again; {keep} leaves its routes unchanged"
            )
        }
    };
    Some(format!("keyspace \"{}\" has {here} here, and had {there} then: {call}", keyspace.name))
}

/// Refuses a decision of a keyspace that is younger than this master's, and may have been created for other tables. If
/// the keyspace is created anew for what the shards know, it is younger again.
fn of_later_one(keyspace: &Keyspace, decision: &Decision) -> Option<String> {
    let (here, there) = (keyspace::made(&keyspace.name)?, decision.keyspace_made?);
    let keep = keeping(decision);
    let call = match keyspace.strategy {
        Strategy::Directory => format!("{keep} leaves its routes unchanged, and opens it"),
        Strategy::Hash { .. } | Strategy::Range { .. } => format!(
            "drop it, add it and its tables as they were then, and call shard_adopt() again; {keep} leaves its routes unchanged"
        ),
    };
    (here < there).then(|| {
        format!(
            "keyspace \"{}\" was dropped and created again since, and its keys are of the later one: {call}",
            keyspace.name
        )
    })
}

/// Refuses a decision if the keyspace was created anew without tables whose rows have moved: the keys may be those of
/// other tables.
fn of_other_tables(keyspace: &Keyspace, decision: &Decision) -> Option<String> {
    let moved =
        decision.tables.as_ref().filter(|_| keyspace::made(&keyspace.name) != decision.keyspace_made)?;
    let here = table_policy::all(&keyspace.name);
    let missing = moved.iter().find(|table| !here.iter().any(|listed| listed.table_name == **table))?;
    Some(format!(
        "keyspace \"{}\" was created again, and has no table {missing}, whose rows moved then: if it is the same one, add its tables with shard_table_add() and call shard_adopt() again; {} leaves its routes unchanged, and opens it",
        keyspace.name,
        keeping(decision)
    ))
}

/// Whether certain decisions have moved all of its keys on: then it does not matter where it led.
fn have_gone_on(lost: &Lost, later: &[&Lost], asked: &AskedShards) -> bool {
    let sure = later.iter().filter(|lost| lost.is_certain || asked.contains_key(&lost.decision.to_shard));
    let gone: BTreeSet<&String> = sure.filter_map(|lost| lost.decision.keys.as_ref()).flatten().collect();
    lost.decision.keys.as_ref().is_some_and(|keys| keys.iter().all(|key| gone.contains(key)))
}

/// Waits for the shard that the keys have moved to, which may have moved them on. Until it has answered that it has
/// not, the keys are routed neither there nor to their earlier shard. They are never routed to a disabled shard.
fn not_asked(lost: &Lost, asked: &AskedShards) -> Option<String> {
    let to = &lost.decision.to_shard;
    match shard::by_key(to) {
        Err(_) => Some(format!(
            "this master has no shard \"{to}\": add it, then call shard_adopt() again; where it was dropped since, {}",
            keeping(&lost.decision)
        )),
        Ok(shard) if lost.is_certain || asked.contains_key(to) || !shard.is_active() => None,
        Ok(_) => Some(format!(
            "shard \"{to}\" may have moved them on, and was not asked: call shard_adopt() once it answers, or disable it first: SELECT shard_set_status({}, 'disabled')",
            literal(to)
        )),
    }
}

/// Waits if the shard that they have moved to has answered, and has taken part neither in this cutover nor in a later
/// one of the keyspace: it was restored to an earlier time, or is another one by now, and may have none of the rows.
fn not_known_there(lost: &Lost, asked: &AskedShards) -> Option<String> {
    let Decision { to_shard, keyspace, version, .. } = &lost.decision;
    let last = asked.get(to_shard)?.get(keyspace);
    if lost.said_by.contains(to_shard) || last.is_some_and(|last| last > version) {
        return None;
    }
    Some(format!(
        "shard \"{to_shard}\" has no record of it, and may have been restored, too: {}",
        by_rows(lost)
    ))
}

fn without_keys(decision: &Decision) -> String {
    let count = usize::try_from(decision.key_count).unwrap_or(0);
    let which = if count > 0 { counted(count, "entry", "entries") } else { "entries".to_owned() };
    format!(
        "no shard knows its {which} any more, and there may be such cutovers before it: find their rows with shard_misplaced(), assign their keys with force => true, then {}",
        keeping(decision)
    )
}

/// Returns the hint that the operator must find out where the keys are.
pub fn by_rows(lost: &Lost) -> String {
    let Decision { from_shard, to_shard, .. } = &lost.decision;
    format!(
        "look on \"{from_shard}\" and \"{to_shard}\" for the rows; {} leaves the routes unchanged",
        keeping(&lost.decision)
    )
}

fn keeping(decision: &Decision) -> String {
    format!("SELECT * FROM shard_adopt(keep_routes => '{{{}}}')", decision.split_id)
}
