//! Settles reservations: confirmed, renewed, cancelled, freed or expired. Leases are compared with the clock: in a
//! long transaction, the time of its start would confirm an expired one.

use super::{error, sweep_clock};
use crate::error::Failure;
use crate::server::sql::{self, Prepared};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

thread_local! {
    static DUE: Prepared = const {
        Prepared::new(include_str!("../../sql/placement/due.sql"), &[pg_sys::TEXTOID, pg_sys::INT4OID])
    };
    static RELEASE: Prepared = const {
        Prepared::new(
            include_str!("../../sql/placement/release.sql"),
            &[pg_sys::INT8ARRAYOID, pg_sys::TEXTOID],
        )
    };
}

/// Ends reservations that this transaction has locked.
fn release(ids: Vec<i64>, status: &'static str) {
    if !ids.is_empty() {
        sql::write_prepared(&RELEASE, &[ids.into(), status.into()], |_| ());
    }
}

/// Expires at most `limit` leases of a kind that have run out, and returns how many.
pub fn expire(kind: &str, limit: i32) -> usize {
    let due = sql::write_prepared(&DUE, &[kind.into(), limit.into()], |row| row.value::<i64>(1));
    let count = due.len();
    release(due, "expired");
    count
}

/// Expires a lease that has run out, after waiting for the session that has locked it. Returns false if it was
/// confirmed or renewed meanwhile.
pub fn expire_one(id: i64) -> bool {
    let due = sql::write_returning(
        "SELECT id FROM shardmaster.shard_reservation
          WHERE id = $1 AND status = 'pending' AND lease_expires_at <= pg_catalog.clock_timestamp() FOR UPDATE",
        &[id.into()],
        |row| row.value::<i64>(1),
    );
    let found = !due.is_empty();
    release(due, "expired");
    found
}

/// Frees the confirmed slots of these keys; keys without one are skipped.
pub fn release_confirmed(kind: &str, logical_keys: Vec<String>) {
    if logical_keys.is_empty() {
        return;
    }
    let held = sql::write_returning(
        "SELECT id FROM shardmaster.shard_reservation
          WHERE kind = $1 AND logical_key = ANY ($2) AND status = 'confirmed' ORDER BY id FOR UPDATE",
        &[kind.into(), logical_keys.into()],
        |row| row.value::<i64>(1),
    );
    release(held, "released");
}

/// Returns the slots that a split keeps on its target.
pub fn cancel_of_split(split_id: i64) {
    let held = sql::write_returning(
        "SELECT id FROM shardmaster.shard_reservation WHERE split_id = $1 AND status = 'pending' ORDER BY id FOR UPDATE",
        &[split_id.into()],
        |row| row.value::<i64>(1),
    );
    release(held, "cancelled");
}

/// Expires a tenant's reservations that have run out; slots are locked as in due.sql.
pub fn expire_of_tenant(tenant: &str, kind: &str) {
    let due = sql::write_returning(
        "SELECT r.id FROM shardmaster.shard_reservation r
           JOIN shardmaster.shard_slots s ON s.shard_id = r.shard_id AND s.slot_no = r.slot_no
          WHERE r.tenant_id = $1 AND r.kind = $2 AND r.status = 'pending'
            AND r.lease_expires_at <= pg_catalog.clock_timestamp()
            FOR UPDATE OF r SKIP LOCKED FOR NO KEY UPDATE OF s SKIP LOCKED",
        &[tenant.into(), kind.into()],
        |row| row.value::<i64>(1),
    );
    release(due, "expired");
}

/// A reservation whose row this transaction has locked.
struct HeldReservation {
    id: i64,
    status: String,
    overdue: bool,
    resource_id: Option<String>,
    shard_key: String,
    shard_disabled: bool,
    kept_for: Option<String>,
}

/// The owner for whom a reservation without a lease is kept, and which must not be settled by hand; SQL over
/// `shard_reservation r`.
const KEPT_FOR: &str = "CASE WHEN r.lease_expires_at IS NOT NULL THEN NULL
                             WHEN r.status = 'pending' THEN 'split ' || r.split_id
                             WHEN r.status = 'confirmed' THEN 'tenant \"' || r.tenant_id || '\"' END";

impl HeldReservation {
    fn lock(id: i64) -> Result<HeldReservation, Failure> {
        // The shard is read after the lock is granted.
        let locked = sql::write_one(
            "SELECT shard_id FROM shardmaster.shard_reservation WHERE id = $1 FOR UPDATE",
            &[id.into()],
            |row| row.value::<i64>(1),
        );
        if locked.is_none() {
            return Err(error::unknown_reservation(id));
        }
        let query = format!(
            "SELECT r.id, r.status, coalesce(r.lease_expires_at <= pg_catalog.clock_timestamp(), false),
                    r.resource_id, s.shard_key, s.status = 'disabled', {KEPT_FOR}
               FROM shardmaster.shard_reservation r JOIN shardmaster.shard s ON s.id = r.shard_id
              WHERE r.id = $1"
        );
        let held = sql::read_one(&query, &[id.into()], |row| HeldReservation {
            id: row.value(1),
            status: row.value(2),
            overdue: row.value(3),
            resource_id: row.get(4),
            shard_key: row.value(5),
            shard_disabled: row.value(6),
            kept_for: row.get(7),
        })
        .ok_or_else(|| error::unknown_reservation(id))?;
        match held.kept_for {
            Some(whom) => Err(error::reservation_kept(id, &whom)),
            None => Ok(held),
        }
    }

    /// Requires that the reservation is pending, its lease is running, and its shard is not disabled.
    fn check_live(&self) -> Result<(), Failure> {
        let not_live = |reason: &str| Err(error::not_live(self.id, reason));
        match self.status.as_str() {
            "pending" if self.overdue => not_live("has expired"),
            "pending" if self.shard_disabled => Err(error::shard_disabled(&self.shard_key)),
            "pending" => Ok(()),
            "expired" => not_live("has expired"),
            "cancelled" => not_live("was cancelled"),
            "released" => not_live("was freed"),
            _ => not_live("is confirmed and has no lease"),
        }
    }
}

/// Sets the resource and the status together.
pub fn confirm(id: i64, resource_id: &str) -> Result<(), Failure> {
    let held = HeldReservation::lock(id)?;
    if held.status == "confirmed" {
        let other = held.resource_id.unwrap_or_default();
        if other == resource_id {
            return Ok(());
        }
        let reason = format!("is confirmed with another resource, \"{other}\"");
        return Err(error::not_live(id, &reason));
    }
    held.check_live()?;
    // One reading of the clock decides that the lease is running, and gives the time of the confirmation.
    let confirmed = sql::write(
        "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
              confirmed AS (
             UPDATE shardmaster.shard_reservation
                SET status = 'confirmed', resource_id = $2, confirmed_at = clock.now, updated_at = clock.now
               FROM clock
              WHERE id = $1 AND (lease_expires_at IS NULL OR lease_expires_at > clock.now)
             RETURNING shard_id, slot_no)
         UPDATE shardmaster.shard_slots s SET resource_id = $2
           FROM confirmed c WHERE s.shard_id = c.shard_id AND s.slot_no = c.slot_no",
        &[id.into(), resource_id.into()],
    );
    if confirmed == 0 {
        return Err(error::not_live(id, "has expired"));
    }
    Ok(())
}

/// Cancels a pending reservation; one that has already ended stays unchanged.
pub fn cancel(id: i64) -> Result<(), Failure> {
    let held = HeldReservation::lock(id)?;
    match held.status.as_str() {
        "pending" if held.overdue => release(vec![id], "expired"),
        "pending" => release(vec![id], "cancelled"),
        "confirmed" => return Err(error::reservation_confirmed(id)),
        _ => {}
    }
    Ok(())
}

/// Makes the lease run for this time from now on, and returns its end.
pub fn renew(id: i64, lease_seconds: f64) -> Result<TimestampWithTimeZone, Failure> {
    HeldReservation::lock(id)?.check_live()?;
    let renewed = sql::write_one(
        "UPDATE shardmaster.shard_reservation
            SET lease_expires_at = clock_timestamp() + make_interval(secs => $2), updated_at = clock_timestamp()
          WHERE id = $1 RETURNING lease_expires_at",
        &[id.into(), lease_seconds.into()],
        |row| row.value::<TimestampWithTimeZone>(1),
    );
    let until = renewed.ok_or_else(|| error::unknown_reservation(id))?;
    // The new end may be earlier than the old one.
    sweep_clock::sweep_on_commit(until);
    Ok(until)
}

/// Frees the slot of a resource that is gone. Returns false if there is no confirmed reservation.
pub fn free(kind: &str, logical_key: &str) -> Result<bool, Failure> {
    let query = format!(
        "SELECT r.id, {KEPT_FOR} FROM shardmaster.shard_reservation r
          WHERE r.kind = $1 AND r.logical_key = $2 AND r.status = 'confirmed' FOR UPDATE"
    );
    let held = sql::write_one(&query, &[kind.into(), logical_key.into()], |row| {
        (row.value::<i64>(1), row.get::<String>(2))
    });
    let Some((id, kept_for)) = held else { return Ok(false) };
    if let Some(whom) = kept_for {
        return Err(error::reservation_kept(id, &whom));
    }
    release(vec![id], "released");
    Ok(true)
}
