//! Rows of `shardmaster.trusted_owner`: roles of shards whose code the mover may run.

use super::caller::Caller;
use super::shard::Shard;
use crate::catalog::{database_location, declaration};
use crate::server::sql;

/// Returns the trusted roles of a shard's server, each by number and name: `16400:owner`. A role that is created anew
/// under the name of a dropped one has another number.
///
/// If the shard turns out to be in this very database, declarations of roles that are not superusers do not count.
pub fn of(shard: &Shard) -> Vec<String> {
    let query = format!(
        "SELECT format('%s:%s', t.role_oid, t.role), EXISTS (SELECT FROM pg_roles r WHERE {} AND r.rolsuper)
           FROM shardmaster.trusted_owner t WHERE t.shard_key = $1 ORDER BY t.role COLLATE \"C\"",
        declaration::is("t.said_by")
    );
    let mut said: Vec<(String, bool)> =
        sql::read_again(&query, &[shard.shard_key.as_str().into()], |row| (row.value(1), row.value(2)));
    if said.iter().any(|(_, by_superuser)| !by_superuser) && database_location::is_known_here(shard) {
        said.retain(|(_, by_superuser)| *by_superuser);
    }
    said.into_iter().map(|(role, _)| role).collect()
}

/// Inserts a trusted role. A repeated declaration about the same role changes nothing, except that a superuser's
/// declaration replaces another role's.
pub fn insert(shard: &Shard, role: &str, number: i64, caller: &Caller) {
    sql::write(
        "INSERT INTO shardmaster.trusted_owner AS t (shard_key, role, role_oid, said_by) VALUES ($1, $2, $3, $4)
             ON CONFLICT (shard_key, role) DO UPDATE
                SET role_oid = excluded.role_oid, since = excluded.since, said_by = excluded.said_by
              WHERE t.role_oid <> excluded.role_oid OR $5",
        &[
            shard.shard_key.as_str().into(),
            role.into(),
            number.into(),
            declaration::by(caller).into(),
            caller.is_superuser().into(),
        ],
    );
}

pub fn delete(shard: &Shard, role: &str) {
    sql::write(
        "DELETE FROM shardmaster.trusted_owner WHERE shard_key = $1 AND role = $2",
        &[shard.shard_key.as_str().into(), role.into()],
    );
}
