//! Slots, reservations and leases; quotas; placed tenants.

use super::rows::RowSet;
use super::{on_primary, row};
use crate::error::{Failure, required};
use crate::placement::choose::PlacementStrategy;
use crate::placement::slot::SlotRequest;
use crate::placement::{error, quota, report, reserve, settle, sweep};
use crate::routing::place;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Returns a value that may be neither NULL nor empty.
fn named(value: Option<String>, name: &'static str) -> Result<String, Failure> {
    let value = required(value, name)?;
    if value.is_empty() {
        return Err(error::invalid(name, "it is empty"));
    }
    Ok(value)
}

/// Returns the seconds of a lease, which has to be positive.
fn lease_seconds(lease: Option<Interval>) -> Result<f64, Failure> {
    let seconds = required(lease, "lease")?.as_micros() as f64 / 1e6;
    if seconds <= 0.0 {
        return Err(error::invalid("lease", "it must be longer than zero"));
    }
    Ok(seconds)
}

#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_reserve_slot(
    kind: Option<String>,
    logical_key: Option<String>,
    tenant_id: Option<String>,
    lease: default!(Option<Interval>, "'5 min'"),
    strategy: default!(Option<String>, "'fill_first'"),
) -> Result<RowSet<row::ReservedSlot>, ErrorReport> {
    on_primary("shard_reserve_slot")?;
    let (kind, key) = (named(kind, "kind")?, named(logical_key, "logical_key")?);
    let tenant = named(tenant_id, "tenant_id")?;
    let lease_seconds = lease_seconds(lease)?;
    let strategy = PlacementStrategy::parse(&required(strategy, "strategy")?)?;
    let request = SlotRequest { kind: &kind, key: &key, tenant: &tenant, lease_seconds };
    let made = reserve::reserve(&request, strategy)?;
    Ok(RowSet::once((made.id, made.shard_key, made.slot_no, made.status, made.lease_expires_at)))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_confirm_slot(
    reservation_id: Option<i64>,
    resource_id: Option<String>,
) -> Result<(), ErrorReport> {
    on_primary("shard_confirm_slot")?;
    let id = required(reservation_id, "reservation_id")?;
    let resource_id = named(resource_id, "resource_id")?;
    Ok(settle::confirm(id, &resource_id)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_cancel_slot(reservation_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_cancel_slot")?;
    Ok(settle::cancel(required(reservation_id, "reservation_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_renew_slot(
    reservation_id: Option<i64>,
    lease: Option<Interval>,
) -> Result<TimestampWithTimeZone, ErrorReport> {
    on_primary("shard_renew_slot")?;
    let id = required(reservation_id, "reservation_id")?;
    Ok(settle::renew(id, lease_seconds(lease)?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_free_slot(kind: Option<String>, logical_key: Option<String>) -> Result<bool, ErrorReport> {
    on_primary("shard_free_slot")?;
    let (kind, key) = (required(kind, "kind")?, required(logical_key, "logical_key")?);
    Ok(settle::free(&kind, &key)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_expire_leases() -> Result<i64, ErrorReport> {
    on_primary("shard_expire_leases")?;
    Ok(sweep::expire_all())
}

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_capacity(kind: default!(Option<String>, "NULL")) -> Result<RowSet<row::Capacity>, ErrorReport> {
    Ok(RowSet::new(report::capacity(kind.as_deref()).into_iter().map(|c| {
        (c.shard_key, c.status, c.capacity, c.minted, c.free, c.leased, c.confirmed, c.available, c.kind)
    })))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_set_quota(
    tenant_id: Option<String>,
    kind: Option<String>,
    max_slots: Option<i64>,
) -> Result<(), ErrorReport> {
    on_primary("shard_set_quota")?;
    let (tenant, kind) = (named(tenant_id, "tenant_id")?, named(kind, "kind")?);
    Ok(quota::set(&tenant, &kind, max_slots)?)
}

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_tenant_usage(
    tenant_id: default!(Option<String>, "NULL"),
    since: default!(Option<TimestampWithTimeZone>, "NULL"),
    until: default!(Option<TimestampWithTimeZone>, "NULL"),
) -> RowSet<row::TenantUsage> {
    RowSet::new(
        report::usage(tenant_id.as_deref(), since, until)
            .into_iter()
            .map(|u| (u.kind, u.leased, u.confirmed, u.quota, u.slot_seconds, u.tenant_id)),
    )
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_place_tenant(
    tenant: Option<String>,
    strategy: default!(Option<String>, "'fill_first'"),
    keyspace: default!(Option<String>, "'default'"),
) -> Result<String, ErrorReport> {
    on_primary("shard_place_tenant")?;
    let tenant = required(tenant, "tenant")?;
    let strategy = PlacementStrategy::parse(&required(strategy, "strategy")?)?;
    Ok(place::place(tenant, strategy, &required(keyspace, "keyspace")?)?)
}

extension_sql_file!(
    "../../sql/comments/placement.sql",
    name = "comments_placement",
    requires = [
        shard_reserve_slot,
        shard_confirm_slot,
        shard_cancel_slot,
        shard_renew_slot,
        shard_free_slot,
        shard_expire_leases,
        shard_capacity,
        shard_set_quota,
        shard_tenant_usage,
        shard_place_tenant
    ]
);
