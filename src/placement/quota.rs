//! Quotas: how many slots of a kind a tenant may hold. Reservations of a tenant with a quota come one after the other;
//! those of other tenants never wait here.

use super::locks::{self, Mode};
use super::{error, settle};
use crate::catalog::keyspace;
use crate::catalog::shard::POSTGRES;
use crate::error::Failure;
use crate::server::{sql, wait};
use std::time::{Duration, Instant};

/// How long a reservation above the quota waits for another session to settle a lease that has run out.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Counts one more slot, or fails if none is left. The caller has shared the tenant's lock since before it read
/// whether there is a quota, or, for a server, holds the lock of the tenant's keyspace.
pub fn take(tenant: &str, kind: &str) -> Result<(), Failure> {
    let locked = sql::write_one(
        "SELECT max_slots FROM shardmaster.shard_quota WHERE tenant_id = $1 AND kind = $2 FOR NO KEY UPDATE",
        &[tenant.into(), kind.into()],
        |row| row.value::<i64>(1),
    );
    let Some(quota) = locked else { return Ok(()) };
    if add_up(tenant, kind) >= quota {
        let held = settled(tenant, kind, quota);
        if held >= quota {
            return Err(error::quota_used_up(tenant, kind, held, quota));
        }
    }
    sql::write(
        "UPDATE shardmaster.shard_quota SET held = held + 1 WHERE tenant_id = $1 AND kind = $2",
        &[tenant.into(), kind.into()],
    );
    Ok(())
}

/// Adds up the returned slots; the caller holds the row's lock, so nobody else does so.
fn add_up(tenant: &str, kind: &str) -> i64 {
    sql::write_one(
        "WITH gone AS (DELETE FROM shardmaster.shard_quota_change WHERE tenant_id = $1 AND kind = $2
                       RETURNING change)
         UPDATE shardmaster.shard_quota SET held = held + (SELECT coalesce(sum(change), 0)::bigint FROM gone)
          WHERE tenant_id = $1 AND kind = $2 RETURNING held",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .unwrap_or(0)
}

/// Returns how many slots are held, before one more is refused: leases that have run out no longer count, and the
/// count from the time when the quota was new may be too high.
///
/// A lease that has run out may be locked: by a session that ends it, or by one that confirmed or renewed it while it
/// ran and has not committed. Nobody can tell which, so the lease counts until that transaction ends. This does not
/// wait in the lock's queue, because the holder may be waiting for this quota.
fn settled(tenant: &str, kind: &str, quota: i64) -> i64 {
    let until = Instant::now() + LONGEST_WAIT;
    loop {
        settle::expire_of_tenant(tenant, kind);
        let held = recount(tenant, kind);
        if held < quota || !has_run_out(tenant, kind) || Instant::now() >= until {
            return held;
        }
        wait::sleep(BETWEEN_LOOKS);
    }
}

/// Whether a lease of the tenant has run out and still exists.
fn has_run_out(tenant: &str, kind: &str) -> bool {
    sql::read_one_latest(
        "SELECT EXISTS (SELECT 1 FROM shardmaster.shard_reservation
                         WHERE tenant_id = $1 AND kind = $2 AND status = 'pending'
                           AND lease_expires_at <= pg_catalog.clock_timestamp())",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .unwrap_or(false)
}

/// Counts in one snapshot, in which either a slot is held or its change is stored: sessions that return slots do not
/// wait for this.
fn recount(tenant: &str, kind: &str) -> i64 {
    sql::write_one(
        "WITH gone AS (DELETE FROM shardmaster.shard_quota_change WHERE tenant_id = $1 AND kind = $2)
         UPDATE shardmaster.shard_quota
            SET held = (SELECT count(*) FROM shardmaster.shard_reservation
                         WHERE tenant_id = $1 AND kind = $2 AND status IN ('pending', 'confirmed'))
          WHERE tenant_id = $1 AND kind = $2 RETURNING held",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .unwrap_or(0)
}

/// Sets a quota, which may be below what is held: no slot is added then. `None` removes the quota.
pub fn set(tenant: &str, kind: &str, max_slots: Option<i64>) -> Result<(), Failure> {
    if max_slots.is_some_and(|slots| slots < 0) {
        return Err(error::invalid("max_slots", "it must not be negative"));
    }
    if kind == POSTGRES {
        // Tenants take their slots under the lock of their keyspace.
        keyspace::lock_all()?;
    }
    // After this, sessions that reserve without having seen the quota have ended.
    locks::tenant(tenant, kind, Mode::Exclusive);
    let Some(max_slots) = max_slots else {
        for table in ["shard_quota", "shard_quota_change"] {
            sql::write(
                &format!("DELETE FROM shardmaster.{table} WHERE tenant_id = $1 AND kind = $2"),
                &[tenant.into(), kind.into()],
            );
        }
        return Ok(());
    };
    sql::write(
        "INSERT INTO shardmaster.shard_quota (tenant_id, kind, max_slots, held) VALUES ($1, $2, $3, 0)
         ON CONFLICT (tenant_id, kind) DO UPDATE SET max_slots = EXCLUDED.max_slots",
        &[tenant.into(), kind.into(), max_slots.into()],
    );
    recount(tenant, kind);
    Ok(())
}
