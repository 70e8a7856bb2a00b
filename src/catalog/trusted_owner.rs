//! Rows of `shardmaster.trusted_owner`: roles of shards whose code the mover may run.

use super::shard::Shard;
use crate::server::sql;

/// The roles of a shard's server, by name.
pub fn of(shard_key: &str) -> Vec<String> {
    sql::read(
        "SELECT role FROM shardmaster.trusted_owner WHERE shard_key = $1 ORDER BY role COLLATE \"C\"",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Saying it again changes nothing.
pub fn insert(shard: &Shard, role: &str) {
    sql::write(
        "INSERT INTO shardmaster.trusted_owner (shard_key, role) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[shard.shard_key.as_str().into(), role.into()],
    );
}

pub fn delete(shard: &Shard, role: &str) {
    sql::write(
        "DELETE FROM shardmaster.trusted_owner WHERE shard_key = $1 AND role = $2",
        &[shard.shard_key.as_str().into(), role.into()],
    );
}
