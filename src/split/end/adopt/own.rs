//! Plans of this master that block the adoption of what shards know: each must first continue, or end, by the call
//! that is named.

use crate::catalog::keyspace::Keyspace;
use crate::catalog::shard_decision::{self, Decision};
use crate::catalog::split_state::{Goal, Phase, row};
use crate::catalog::{in_use, reverse_split, routing};
use crate::keys::interval::Interval;
use std::collections::BTreeSet;

/// Handles a decision of a plan of this master, whose worker takes it over. A plan that has installed nothing would
/// begin anew.
pub fn lost_of_plan(decision: &Decision) -> Option<String> {
    let id = shard_decision::plan_of(decision)?;
    // A reverse split was installed by its split.
    let has_begun = |id: i64| {
        row::read(id).is_ok_and(|now| {
            now.phase != Phase::Planning || now.goal != Goal::Planning && reverse_split::there(id).is_some()
        })
    };
    let call = match reverse_split::there(id) {
        _ if has_begun(id) => {
            format!("will make this change when it continues: SELECT shard_split_resume({id})")
        }
        Some(there) if is_decided(there) => {
            format!(
                "will make this change once split {there} is taken back: SELECT shard_split_reverse({there})"
            )
        }
        Some(there) => format!("was to take split {there} back: SELECT shard_split_rollback({there})"),
        None => format!("has not begun here: SELECT shard_split_rollback({id})"),
    };
    Some(format!("split {id} of this master {call}, then call shard_adopt() again"))
}

/// Returns a plan of this master that has one of the keys, although another split has moved it on the shards since:
/// the plan must end.
pub fn holder(keyspace: &Keyspace, keys: &[String]) -> Option<String> {
    let (id, key) = in_use::split_of_keys(&keyspace.name, &entries(keyspace, keys))?;
    let call = if is_decided(id) { "finish" } else { "rollback" };
    Some(format!(
        "split {id} of this master has key \"{key}\", and has ended on the shards: SELECT shard_split_{call}({id}), then call shard_adopt() again"
    ))
}

/// Returns the names of the routing entries that have these keys, or parts of these ranges.
pub fn entries(keyspace: &Keyspace, keys: &[String]) -> Vec<String> {
    let Some(of) = keyspace.strategy.order() else { return keys.to_vec() };
    let ranges = keys.iter().filter_map(|key| Interval::parse(key, of));
    let entries = ranges.flat_map(|range| routing::ranges(&keyspace.name, of, &range));
    entries.map(|entry| entry.name).collect::<BTreeSet<_>>().into_iter().collect()
}

fn is_decided(id: i64) -> bool {
    row::read(id).is_ok_and(|state| state.phase == Phase::Completed)
}
