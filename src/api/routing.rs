//! The functions with which clients find the shard that holds a key.

use super::row;
use super::rows::RowSet;
use crate::catalog::caller::Caller;
use crate::error::required;
use crate::routing::found::Intent;
use crate::routing::{lookup, midpoint, route_range, signal};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// It has no SECURITY DEFINER and no settings, which would cost more than the call; a key that is not cached is looked
/// up with both.
#[pg_extern(volatile, parallel_restricted)]
pub fn shard_of(
    key: Option<&str>,
    intent: default!(Option<&str>, "'write'"),
    keyspace: default!(Option<&str>, "'default'"),
) -> Result<String, ErrorReport> {
    let key = required(key, "key")?;
    let intent = Intent::parse(required(intent, "intent")?)?;
    Ok(lookup::shard_of(key, intent, required(keyspace, "keyspace")?)?)
}

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_restricted)]
pub fn shard_route(
    key: Option<&str>,
    intent: default!(Option<&str>, "'write'"),
    keyspace: default!(Option<&str>, "'default'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(shard_key, String),
            name!(conninfo, Option<String>),
            name!(routing_version, i64),
            name!(namespace, String),
        ),
    >,
    ErrorReport,
> {
    let key = required(key, "key")?;
    let intent = Intent::parse(required(intent, "intent")?)?;
    let route = lookup::route(key, intent, required(keyspace, "keyspace")?)?;
    Ok(TableIterator::once((route.shard_key, route.conninfo, route.version, route.namespace)))
}

/// A bound that is NULL is open.
#[pg_extern(volatile, parallel_restricted, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_route_range(
    lower: Option<&str>,
    upper: Option<&str>,
    intent: default!(Option<&str>, "'write'"),
    keyspace: default!(Option<&str>, "'default'"),
) -> Result<RowSet<row::RouteRange>, ErrorReport> {
    let intent = Intent::parse(required(intent, "intent")?)?;
    let parts = route_range::route(lower, upper, intent, required(keyspace, "keyspace")?)?;
    Ok(RowSet::new(parts.into_iter().map(|part| {
        let route = part.route;
        (part.lower, part.upper, route.shard_key, route.conninfo, route.version, route.namespace)
    })))
}

/// A bound that is NULL is open.
/// SECURITY INVOKER: what it does depends on who calls.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_range_midpoint(
    keyspace: Option<&str>,
    lower: Option<&str>,
    upper: Option<&str>,
    by: default!(Option<&str>, "'rows'"),
) -> Result<String, ErrorReport> {
    let (keyspace, by) = (required(keyspace, "keyspace")?, required(by, "by")?);
    Ok(Caller::as_owner(|caller| midpoint::propose(keyspace, lower, upper, by, caller))?)
}

/// Fires when routing, a keyspace or a shard has changed, also by hand: at the commit, every session on this server
/// and on its standbys drops the routes that it caches.
#[pg_trigger(
    sql = "CREATE FUNCTION shardmaster.routing_changed() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn routing_changed<'a>(
    _trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, impl WhoAllocated>>, std::convert::Infallible> {
    signal::send(&signal::ROUTES);
    Ok(None::<PgHeapTuple<'a, AllocatedByPostgres>>)
}

extension_sql_file!(
    "../../sql/routing_signal.sql",
    name = "routing_signal",
    requires = ["catalog", "shard_decision", routing_changed]
);

extension_sql_file!(
    "../../sql/comments/routing.sql",
    name = "comments_routing",
    requires = [shard_of, shard_route, shard_route_range, shard_range_midpoint]
);
