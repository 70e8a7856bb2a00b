//! Keys are assigned to shards.

use crate::error::required;
use crate::routing::{assign, rollback};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign(
    key: Option<String>,
    shard_key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    let key = required(key, "key")?;
    let shard_key = required(shard_key, "shard_key")?;
    let keyspace = required(keyspace, "keyspace")?;
    let force = required(force, "force")?;
    Ok(assign::assign(vec![Some(key)], &shard_key, &keyspace, force, reason.as_deref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_many(
    keys: Option<Vec<Option<String>>>,
    shard_key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    let keys = required(keys, "keys")?;
    let shard_key = required(shard_key, "shard_key")?;
    let keyspace = required(keyspace, "keyspace")?;
    let force = required(force, "force")?;
    Ok(assign::assign(keys, &shard_key, &keyspace, force, reason.as_deref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_unassign(
    key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    Ok(assign::unassign(required(key, "key")?, &required(keyspace, "keyspace")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_routing_rollback(
    version: Option<i64>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    Ok(rollback::rollback(required(version, "version")?, &required(keyspace, "keyspace")?)?)
}

extension_sql_file!(
    "../../sql/comments/assignment.sql",
    name = "comments_assignment",
    requires = [shard_assign, shard_assign_many, shard_unassign, shard_routing_rollback]
);
