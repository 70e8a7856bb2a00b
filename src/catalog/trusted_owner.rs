//! Rows of `shardmaster.trusted_owner`: roles of shards whose code the mover may run.

use super::shard::Shard;
use crate::server::sql;

/// The roles of a shard's server, each by number and name: `16400:owner`. A role that is made
/// anew under the name of one that is gone has another number.
pub fn of(shard_key: &str) -> Vec<String> {
    sql::read(
        "SELECT format('%s:%s', role_oid, role) FROM shardmaster.trusted_owner WHERE shard_key = $1
          ORDER BY role COLLATE \"C\"",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Saying it again of the same role changes nothing.
pub fn insert(shard: &Shard, role: &str, number: i64) {
    sql::write(
        "INSERT INTO shardmaster.trusted_owner AS t (shard_key, role, role_oid) VALUES ($1, $2, $3)
             ON CONFLICT (shard_key, role) DO UPDATE
                SET role_oid = excluded.role_oid, since = excluded.since, said_by = excluded.said_by
              WHERE t.role_oid <> excluded.role_oid",
        &[shard.shard_key.as_str().into(), role.into(), number.into()],
    );
}

pub fn delete(shard: &Shard, role: &str) {
    sql::write(
        "DELETE FROM shardmaster.trusted_owner WHERE shard_key = $1 AND role = $2",
        &[shard.shard_key.as_str().into(), role.into()],
    );
}
