//! What active splits hold: keys, shards, keyspaces. A plan is active until it is
//! rolled back or finished.

use super::split_state::IS_ACTIVE;
use crate::server::sql;
use std::collections::BTreeSet;

/// A split that moves one of the keys, and which key: the first, where there are several.
pub fn split_of_keys(keyspace: &str, keys: &[String]) -> Option<(i64, String)> {
    // Not ORDER BY .. LIMIT 1, for which the planner may read the keys of all splits.
    let held = sql::read(
        "SELECT split_id, key FROM shardmaster.split_key WHERE keyspace = $1 AND key = ANY ($2) AND active",
        &[keyspace.into(), keys.to_vec().into()],
        |row| (row.value(1), row.value(2)),
    );
    held.into_iter().min()
}

/// The entries of routing that active splits of a keyspace move.
pub fn entries_of_splits(keyspace: &str) -> BTreeSet<String> {
    sql::read(
        "SELECT key FROM shardmaster.split_key WHERE keyspace = $1 AND active",
        &[keyspace.into()],
        |row| row.value(1),
    )
    .into_iter()
    .collect()
}

/// A split that has the shard as source or target.
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

/// A split of the keyspace.
pub fn split_of_keyspace(keyspace: &str) -> Option<i64> {
    sql::read_one(
        &format!(
            "SELECT id FROM shardmaster.split_plan WHERE keyspace = $1 AND {IS_ACTIVE} ORDER BY id LIMIT 1"
        ),
        &[keyspace.into()],
        |row| row.value(1),
    )
}
