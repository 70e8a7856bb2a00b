//! Quotas: how many slots of a kind a tenant may hold. Reservations of a tenant with a
//! quota come one after the other, those of others never wait here.

use super::locks::{self, Mode};
use super::{PlacementError, settle};
use crate::catalog::keyspace;
use crate::catalog::shard::POSTGRES;
use crate::error::Failure;
use crate::server::{sql, wait};
use std::time::{Duration, Instant};

/// How long a reservation above the quota waits for somebody else to settle a lease that has
/// run out.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Counts one more slot, or says that there is none left. The caller holds the tenant's
/// lock, shared, since before it knew that there is a quota; or, for a server, the lock
/// of the tenant's keyspace.
pub fn take(tenant: &str, kind: &str) -> Result<(), PlacementError> {
    let locked = sql::write_returning(
        "SELECT max_slots FROM shardmaster.shard_quota WHERE tenant_id = $1 AND kind = $2 FOR NO KEY UPDATE",
        &[tenant.into(), kind.into()],
        |row| row.value::<i64>(1),
    );
    let Some(&quota) = locked.first() else { return Ok(()) };
    if add_up(tenant, kind) >= quota {
        let held = settled(tenant, kind, quota);
        if held >= quota {
            return Err(PlacementError::Quota { tenant: tenant.into(), kind: kind.into(), held, quota });
        }
    }
    sql::write(
        "UPDATE shardmaster.shard_quota SET held = held + 1 WHERE tenant_id = $1 AND kind = $2",
        &[tenant.into(), kind.into()],
    );
    Ok(())
}

/// Adds up what was given back; under the row's lock, so nobody else does.
fn add_up(tenant: &str, kind: &str) -> i64 {
    sql::write_returning(
        "WITH gone AS (DELETE FROM shardmaster.shard_quota_change WHERE tenant_id = $1 AND kind = $2
                       RETURNING change)
         UPDATE shardmaster.shard_quota SET held = held + (SELECT coalesce(sum(change), 0)::bigint FROM gone)
          WHERE tenant_id = $1 AND kind = $2 RETURNING held",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .first()
    .copied()
    .unwrap_or(0)
}

/// How many slots are held, before one more is refused: leases that have run out count no
/// more, and the count of a time when the quota was new may be too high.
///
/// A lease that has run out may be locked: by whoever ends it, or by whoever has confirmed or
/// renewed it while it ran and has not committed. Nobody can tell which, so it counts until that
/// is over. It is not waited for in the lock's queue: who has it may wait for this quota.
fn settled(tenant: &str, kind: &str, quota: i64) -> i64 {
    let until = Instant::now() + PATIENCE;
    loop {
        settle::expire_of_tenant(tenant, kind);
        let held = recount(tenant, kind);
        if held < quota || !has_run_out(tenant, kind) || Instant::now() >= until {
            return held;
        }
        wait::sleep(BETWEEN_LOOKS);
    }
}

/// Whether a lease of the tenant has run out and is still there.
fn has_run_out(tenant: &str, kind: &str) -> bool {
    sql::read_latest(
        "SELECT EXISTS (SELECT 1 FROM shardmaster.shard_reservation
                         WHERE tenant_id = $1 AND kind = $2 AND status = 'pending'
                           AND lease_expires_at <= pg_catalog.clock_timestamp())",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .first()
    .copied()
    .unwrap_or(false)
}

/// Counts in one snapshot, in which a slot is either held or its change is there: those
/// who give back do not wait for this.
fn recount(tenant: &str, kind: &str) -> i64 {
    sql::write_returning(
        "WITH gone AS (DELETE FROM shardmaster.shard_quota_change WHERE tenant_id = $1 AND kind = $2)
         UPDATE shardmaster.shard_quota
            SET held = (SELECT count(*) FROM shardmaster.shard_reservation
                         WHERE tenant_id = $1 AND kind = $2 AND status IN ('pending', 'confirmed'))
          WHERE tenant_id = $1 AND kind = $2 RETURNING held",
        &[tenant.into(), kind.into()],
        |row| row.value(1),
    )
    .first()
    .copied()
    .unwrap_or(0)
}

/// Sets a quota, also below what is held: then nothing is added. None: no quota.
pub fn set(tenant: &str, kind: &str, max_slots: Option<i64>) -> Result<(), Failure> {
    if max_slots.is_some_and(|slots| slots < 0) {
        return Err(PlacementError::invalid("max_slots", "it must not be negative").into());
    }
    if kind == POSTGRES {
        // Tenants take their slots under their keyspace's lock.
        keyspace::lock_all()?;
    }
    // Whoever reserves without having seen the quota has ended by then.
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
