//! What active splits hold: keys, shards, keyspaces. A plan is active until it is rolled back or finished.

use super::shard::{self, Shard};
use super::split_state::{IS_ACTIVE, IS_UNFINISHED, RESTS};
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::server::sql;
use std::collections::BTreeSet;

/// The number of keys above which no query is given the keys unless an active split could hold one.
const MANY: usize = 1_000;

/// Returns a split that moves one of the keys, and that key: the first, if there are several.
pub fn split_of_keys(keyspace: &str, keys: &[String]) -> Option<(i64, String)> {
    if keys.len() > MANY && !has_active(keyspace) {
        return None;
    }
    // Not ORDER BY .. LIMIT 1, for which the planner may read the keys of all splits.
    let held = sql::read(
        "SELECT split_id, key FROM shardmaster.split_key WHERE keyspace = $1 AND key = ANY ($2) AND active",
        &[keyspace.into(), keys.to_vec().into()],
        |row| (row.value(1), row.value(2)),
    );
    held.into_iter().min()
}

fn has_active(keyspace: &str) -> bool {
    let query = "SELECT 1 FROM shardmaster.split_key WHERE keyspace = $1 AND active LIMIT 1";
    sql::exists(query, &[keyspace.into()])
}

/// Returns the routing entries that active splits of a keyspace move.
pub fn entries_of_splits(keyspace: &str) -> BTreeSet<String> {
    sql::read_column(
        "SELECT key FROM shardmaster.split_key WHERE keyspace = $1 AND active",
        &[keyspace.into()],
    )
    .into_iter()
    .collect()
}

/// Returns all active splits of a shard, whatever goal they have.
pub fn splits_of_shard(shard_key: &str) -> Vec<i64> {
    let query = format!(
        "SELECT id FROM shardmaster.split_plan WHERE (source_shard = $1 OR target_shard = $1) AND {IS_ACTIVE} ORDER BY id"
    );
    sql::read_column(&query, &[shard_key.into()])
}

/// Returns an active split that has the shard as source or target.
pub fn split_of_shard(shard_key: &str) -> Option<i64> {
    sql::read_one(
        &format!(
            "SELECT id FROM shardmaster.split_plan
              WHERE (source_shard = $1 OR target_shard = $1) AND {IS_ACTIVE} ORDER BY id LIMIT 1"
        ),
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Returns a split that may have begun on a shard and has not ended, as of now. A split that failed before anything
/// moved does not count: it checks its shards anew when it continues, and what blocks it there may be repaired
/// meanwhile.
pub fn split_under_way(shard_key: &str) -> Option<i64> {
    let query = format!(
        "SELECT id FROM shardmaster.split_plan
          WHERE (source_shard = $1 OR target_shard = $1) AND {IS_UNFINISHED}
            AND NOT (phase = 'planning' AND activity = 'failed') ORDER BY id LIMIT 1"
    );
    sql::read_one_latest(&query, &[shard_key.into()], |row| row.value(1))
}

/// Returns an active split of the keyspace.
pub fn split_of_keyspace(keyspace: &str) -> Option<i64> {
    sql::read_one(
        &format!(
            "SELECT id FROM shardmaster.split_plan WHERE keyspace = $1 AND {IS_ACTIVE} ORDER BY id LIMIT 1"
        ),
        &[keyspace.into()],
        |row| row.value(1),
    )
}

/// An active split of a keyspace from which a table is to be removed.
pub struct KeyspaceSplit {
    pub split: i64,
    /// The split has nothing on a shard, and no worker runs it: it is planned, or its start has failed.
    pub is_planned: bool,
    pub has_table: bool,
    pub has_others: bool,
}

/// SQL condition: a plan that has not begun, or whose start has failed. It excludes reverse splits, which have their
/// split's tables.
const IS_PLANNED: &str = "phase = 'planning' AND reverse_of IS NULL AND (goal = 'planning' OR activity = 'failed')
    AND NOT EXISTS (SELECT 1 FROM shardmaster.split_ledger l WHERE l.split_id = split_plan.id AND l.removed_at IS NULL)";

/// Returns all splits that hold the table. Their rows are locked: none is started before the transaction ends.
pub fn holders_of_table(keyspace: &str, table: &str) -> Vec<KeyspaceSplit> {
    let query = format!(
        "SELECT id, {IS_PLANNED},
                EXISTS (SELECT 1 FROM shardmaster.split_table t WHERE t.split_id = split_plan.id AND t.table_name = $2),
                EXISTS (SELECT 1 FROM shardmaster.split_table t WHERE t.split_id = split_plan.id AND t.table_name <> $2)
           FROM shardmaster.split_plan WHERE keyspace = $1 AND {IS_ACTIVE} ORDER BY id FOR UPDATE"
    );
    sql::write_returning(&query, &[keyspace.into(), table.into()], |row| KeyspaceSplit {
        split: row.value(1),
        is_planned: row.value(2),
        has_table: row.value(3),
        has_others: row.value(4),
    })
}

pub fn is_planned(split: i64) -> bool {
    let query = format!("SELECT {IS_PLANNED} FROM shardmaster.split_plan WHERE id = $1");
    sql::read_one(&query, &[split.into()], |row| row.value(1)).unwrap_or(false)
}

/// Returns why a split tries again, as its worker last recorded it.
fn stored_reason(split: i64) -> Option<String> {
    sql::read_optional::<String>(
        "SELECT waiting_for FROM shardmaster.split_plan WHERE id = $1 AND activity = 'retrying'",
        &[split.into()],
    )
}

/// Whether a split waits for another one's rows, or for a split that does, and so on. The text of what each of them
/// waits for begins with the split that it names.
pub fn waits_for(split: i64, other: i64) -> bool {
    let (mut at, mut seen) = (split, BTreeSet::new());
    while seen.insert(at) {
        match stored_reason(at).as_deref().and_then(named_split) {
            Some(next) if next == other => return true,
            Some(next) => at = next,
            None => return false,
        }
    }
    false
}

fn named_split(reason: &str) -> Option<i64> {
    reason.strip_prefix("split ")?.split_once(", which moves ")?.0.parse().ok()
}

/// Returns a split, other than the given one, that moves rows of a table from or to a place that is or may be where
/// the shard is.
pub fn split_of_table(keyspace: &str, table: &str, at: &Shard, other_than: i64) -> Option<i64> {
    let splits: Vec<(i64, String, String)> = sql::read(
        &format!(
            "SELECT id, source_shard, target_shard FROM shardmaster.split_plan
              WHERE keyspace = $1 AND id <> $3 AND {IS_ACTIVE} AND NOT {RESTS}
                AND EXISTS (SELECT 1 FROM shardmaster.split_table t WHERE t.split_id = split_plan.id AND t.table_name = $2)
              ORDER BY id"
        ),
        &[keyspace.into(), table.into(), other_than.into()],
        |row| (row.value(1), row.value(2), row.value(3)),
    );
    let is_there = |shard_key: &str| {
        shard_key == at.shard_key
            || shard::by_key(shard_key)
                .is_ok_and(|shard| database_location::compare(&shard, at) != Sameness::Different)
    };
    splits.into_iter().find(|(_, source, target)| is_there(source) || is_there(target)).map(|(id, ..)| id)
}
