//! Assigns keys to shards.

use super::on_primary;
use crate::error::required;
use crate::routing::{assign, buckets, ranges, rollback};
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
    on_primary("shard_assign")?;
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
    on_primary("shard_assign_many")?;
    let keys = required(keys, "keys")?;
    let shard_key = required(shard_key, "shard_key")?;
    let keyspace = required(keyspace, "keyspace")?;
    let force = required(force, "force")?;
    Ok(assign::assign(keys, &shard_key, &keyspace, force, reason.as_deref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_bucket(
    bucket: Option<i32>,
    shard_key: Option<String>,
    keyspace: Option<String>,
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_assign_bucket")?;
    let bucket = required(bucket, "bucket")?;
    let shard_key = required(shard_key, "shard_key")?;
    let keyspace = required(keyspace, "keyspace")?;
    let force = required(force, "force")?;
    Ok(buckets::assign(bucket, &shard_key, &keyspace, force, reason.as_deref())?)
}

/// A bound that is NULL is open.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_range(
    lower: Option<String>,
    upper: Option<String>,
    shard_key: Option<String>,
    keyspace: Option<String>,
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_assign_range")?;
    let shard_key = required(shard_key, "shard_key")?;
    let keyspace = required(keyspace, "keyspace")?;
    let force = required(force, "force")?;
    let (lower, upper) = (lower.as_deref(), upper.as_deref());
    Ok(ranges::assign(lower, upper, &shard_key, &keyspace, force, reason.as_deref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_join_ranges(
    keyspace: Option<String>,
    lower: default!(Option<String>, "NULL"),
    upper: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_join_ranges")?;
    Ok(ranges::join(&required(keyspace, "keyspace")?, lower.as_deref(), upper.as_deref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_unassign(
    key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_unassign")?;
    Ok(assign::unassign(required(key, "key")?, &required(keyspace, "keyspace")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_routing_rollback(
    version: Option<i64>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_routing_rollback")?;
    Ok(rollback::rollback(required(version, "version")?, &required(keyspace, "keyspace")?)?)
}

extension_sql_file!(
    "../../sql/comments/assignment.sql",
    name = "comments_assignment",
    requires = [
        shard_assign,
        shard_assign_many,
        shard_assign_bucket,
        shard_assign_range,
        shard_join_ranges,
        shard_unassign,
        shard_routing_rollback
    ]
);
