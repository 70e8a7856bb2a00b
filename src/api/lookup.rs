//! Lookup indexes: keys that lead to keys of another keyspace.

use super::rows::RowSet;
use super::{on_primary, row};
use crate::catalog::lookup as catalog;
use crate::error::required;
use crate::lookups;
use crate::routing::{error, lookup, signal};
use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// It has no SECURITY DEFINER and no settings, for the reason given at shard_of.
#[pg_extern(volatile, parallel_restricted)]
pub fn shard_lookup(key: Option<&str>, keyspace: Option<&str>) -> Result<String, ErrorReport> {
    let key = required(key, "key")?;
    Ok(lookup::owner(key, required(keyspace, "keyspace")?)?)
}

/// In seconds. A claim that is not fulfilled keeps its key from all other owners.
const LONGEST_LEASE: f64 = 86_400.0;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_lookup_claim(
    key: Option<String>,
    owner: Option<String>,
    keyspace: Option<String>,
    lease: default!(Option<Interval>, "'5 min'"),
) -> Result<Option<TimestampWithTimeZone>, ErrorReport> {
    on_primary("shard_lookup_claim")?;
    let (key, owner) = (required(key, "key")?, required(owner, "owner")?);
    let keyspace = required(keyspace, "keyspace")?;
    let seconds = required(lease, "lease")?.as_micros() as f64 / 1e6;
    if seconds <= 0.0 {
        return Err(error::invalid("lease", "it must be longer than zero").into());
    }
    if seconds > LONGEST_LEASE {
        return Err(error::invalid("lease", "it must not be longer than one day").into());
    }
    Ok(lookups::claim(&key, &owner, &keyspace, seconds)?)
}

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_lookup_conflicts(
    keyspace: Option<String>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(key, String),
            name!(owner, String),
            name!(routed_to, Option<String>),
            name!(found_at, TimestampWithTimeZone),
        ),
    >,
    ErrorReport,
> {
    let conflicts = lookups::conflicts(&required(keyspace, "keyspace")?)?;
    Ok(TableIterator::new(
        conflicts.into_iter().map(|found| (found.key, found.owner, found.routed_to, found.found_at)),
    ))
}

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_lookups() -> RowSet<row::Lookup> {
    RowSet::new(catalog::shown().into_iter().map(|shown| {
        (
            shown.lookup,
            shown.of,
            shown.table_name,
            shown.column,
            shown.shard_key,
            shown.state,
            shown.waiting,
            shown.lag_seconds,
            shown.error,
        )
    }))
}

/// Fires when an owner is deleted or changed, also by hand: at the commit, every session drops the owners that it
/// caches.
#[pg_trigger(
    sql = "CREATE FUNCTION shardmaster.lookup_changed() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn lookup_changed<'a>(
    _trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, impl WhoAllocated>>, std::convert::Infallible> {
    signal::send(&signal::OWNERS);
    Ok(None::<PgHeapTuple<'a, AllocatedByPostgres>>)
}

extension_sql_file!(
    "../../sql/lookup_signal.sql",
    name = "lookup_signal",
    requires = ["lookup", lookup_changed]
);

extension_sql_file!(
    "../../sql/comments/lookup.sql",
    name = "comments_lookup",
    requires = [shard_lookup, shard_lookup_claim, shard_lookup_conflicts, shard_lookups]
);
