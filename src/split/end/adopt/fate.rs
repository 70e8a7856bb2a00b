//! What becomes of a decision that shards know: taken over, or what is to be done first.

use super::call::AskedShards;
use super::merge::Lost;
use super::own;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::shard;
use crate::catalog::shard_decision::Decision;
use crate::catalog::table_policy;
use crate::keys::strategy::Strategy;
use crate::remote::quote::literal;
use crate::words::counted;
use std::collections::BTreeSet;

/// Versions that a master may have lost. A number further ahead would use up those that are left.
const MOST_LOST: i64 = 1_000_000;

/// What becomes of a decision.
pub enum DecisionFate {
    /// Its keys are routed by it, unless a later one has them.
    Taken,
    /// It is known from now on, and their routes stay.
    Kept,
    /// Something is to be done first: until then it holds the keyspace up.
    Waits(String),
}

/// `later`: the decisions behind it.
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

/// What no cutover of this keyspace can have said.
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

/// The keyspace was dropped and made otherwise by the same name: a bucket of others has other keys, and a key of another
/// type is another one.
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
        (Strategy::Directory, Some(of)) => format!("{entries} of {}", of.name()),
        (Strategy::Directory | Strategy::Hash { .. } | Strategy::Range { .. }, _) => entries,
    };
    let keep = keeping(decision);
    let call = match keyspace.strategy {
        // Its keys would have to be taken out first, which nobody may as long as it is closed.
        Strategy::Directory => format!("{keep} leaves its routes unchanged, and opens it"),
        Strategy::Hash { .. } | Strategy::Range { .. } => {
            format!(
                "drop it and add it so, then call shard_adopt() again; {keep} leaves its routes unchanged"
            )
        }
    };
    Some(format!("keyspace \"{}\" has {here} here, and had {there} then: {call}", keyspace.name))
}

/// The keyspace of this master is older than the one whose keys moved, which was made for other tables, perhaps. Whoever makes it anew
/// for what shards know makes a younger one.
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

/// The keyspace was made anew, and tables whose rows have moved are none of it: the keys are those of other tables, perhaps.
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

/// Whether all of its keys were moved on by decisions that are known for sure: where it led to matters to nobody then.
fn have_gone_on(lost: &Lost, later: &[&Lost], asked: &AskedShards) -> bool {
    let sure = later.iter().filter(|lost| lost.is_certain || asked.contains_key(&lost.decision.to_shard));
    let gone: BTreeSet<&String> = sure.filter_map(|lost| lost.decision.keys.as_ref()).flatten().collect();
    lost.decision.keys.as_ref().is_some_and(|keys| keys.iter().all(|key| gone.contains(key)))
}

/// The shard that the keys have moved to may have moved them on. Until it has said that it has not, nobody is sent
/// there, and nobody where they were. Nobody is sent to one that is disabled.
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

/// The shard that they have moved to has answered, and has taken part neither in this cutover nor in a later one of the
/// keyspace: it was set back itself, or is another one by now, and may have none of the rows.
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

/// The operator is to say where the keys are.
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
