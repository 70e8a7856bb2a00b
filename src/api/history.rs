//! The current and the past routing.

use super::row;
use super::rows::RowSet;
use crate::catalog::{keyspace, routing, routing_history};
use crate::error::{Failure, required};
use crate::routing::{error, rollback};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_entries(
    keyspace: default!(Option<String>, "'default'"),
) -> Result<RowSet<row::Entry>, ErrorReport> {
    let keyspace = keyspace::find(&required(keyspace, "keyspace")?).map_err(Failure::from)?;
    Ok(RowSet::new(
        routing::entries(&keyspace.name)
            .into_iter()
            .map(|e| (e.key, e.bucket, e.lower, e.upper, e.read_shard, e.write_shard, e.status, e.version)),
    ))
}

#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_routing_version(keyspace: default!(Option<String>, "'default'")) -> Result<i64, ErrorReport> {
    let keyspace = keyspace::find(&required(keyspace, "keyspace")?).map_err(Failure::from)?;
    Ok(keyspace::version(&keyspace.name))
}

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_routing_history(
    keyspace: default!(Option<String>, "'default'"),
) -> Result<RowSet<row::RoutingHistory>, ErrorReport> {
    let keyspace = keyspace::find(&required(keyspace, "keyspace")?).map_err(Failure::from)?;
    Ok(RowSet::new(routing_history::history(&keyspace.name).into_iter().map(|h| {
        (h.version, h.changed_at, h.key, h.from_shard, h.to_shard, h.reason, h.changed_by, h.split_id)
    })))
}

#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_route_at(
    key: Option<String>,
    version: Option<i64>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<String, ErrorReport> {
    let key = required(key, "key")?;
    let version = required(version, "version")?;
    Ok(route_at(&key, version, &required(keyspace, "keyspace")?)?)
}

fn route_at(key: &str, version: i64, keyspace: &str) -> Result<String, Failure> {
    let keyspace = keyspace::find(keyspace)?;
    rollback::check_version(&keyspace, version)?;
    let key = keyspace.key_type().canonical(key);
    routing_history::shard_at(&keyspace, &key, version)
        .ok_or_else(|| error::unknown_key_at(&keyspace.name, version, &key))
}

extension_sql_file!(
    "../../sql/comments/history.sql",
    name = "comments_history",
    requires = [shard_entries, shard_routing_version, shard_routing_history, shard_route_at]
);
