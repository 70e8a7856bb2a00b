//! The table `split_ledger`: the shards where something of a split is, or may be.

use super::split_state::IS_OVER;
use crate::server::sql;

/// Records that something is about to be created there. `sides`: 'source' or 'target', with the shard's name.
pub fn write(id: i64, sides: &[(&str, &str)]) {
    for (side, shard) in sides {
        sql::write(
            "INSERT INTO shardmaster.split_ledger (split_id, side, shard_key) VALUES ($1, $2, $3)
             ON CONFLICT (split_id, side) DO UPDATE SET created_at = clock_timestamp(), removed_at = NULL",
            &[id.into(), (*side).into(), (*shard).into()],
        );
    }
}

/// Records that nothing of the split is left, except on the lost side: if that shard returns, shard_cleanup removes
/// what it has.
pub fn removed(id: i64, but_for: Option<&str>) {
    sql::write(
        "UPDATE shardmaster.split_ledger SET removed_at = clock_timestamp()
          WHERE split_id = $1 AND removed_at IS NULL AND side IS DISTINCT FROM $2",
        &[id.into(), but_for.into()],
    );
}

/// Records that a shard has nothing of ended splits except those in `kept`: it was removed, or the shard that had it
/// did not return.
pub fn close(shard_key: &str, kept: &[i64]) {
    sql::write(
        &format!(
            "UPDATE shardmaster.split_ledger l SET removed_at = clock_timestamp()
               FROM shardmaster.split_plan p
              WHERE p.id = l.split_id AND l.shard_key = $1 AND l.removed_at IS NULL AND l.split_id <> ALL ($2)
                AND {IS_OVER}"
        ),
        &[shard_key.into(), kept.to_vec().into()],
    );
}

/// Records that objects stay on a shard that is gone for good: shard_cleanup removes them.
pub fn reopen(id: i64, side: &str) {
    sql::write(
        "UPDATE shardmaster.split_ledger SET removed_at = NULL WHERE split_id = $1 AND side = $2",
        &[id.into(), side.into()],
    );
}

/// Whether a shard has, or may have, something of the split.
pub fn has_sides(id: i64) -> bool {
    sql::exists(
        "SELECT 1 FROM shardmaster.split_ledger WHERE split_id = $1 AND removed_at IS NULL LIMIT 1",
        &[id.into()],
    )
}
