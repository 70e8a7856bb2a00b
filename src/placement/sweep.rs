//! The worker's part of placement: it expires leases, archives reservations, and adds up changes, in batches, each in
//! a transaction of its own.

use super::{free_slots, settle};
use crate::catalog::event;
use crate::guc;
use crate::server::sql;
use serde_json::json;
use std::time::Duration;

/// The number of reservations in a batch of the lease expirer: a client's commit waits for no more WAL of it than that.
const BATCH: i32 = 10;
/// The number of reservations in a batch of a caller, who waits for all of them.
const LARGE_BATCH: i32 = 500;
/// The number of changes in a batch.
const ENTRIES: i32 = 1_000;

fn kinds() -> Vec<String> {
    sql::read_column("SELECT DISTINCT kind FROM shardmaster.shard ORDER BY kind", &[])
}

fn notify(expired: usize) {
    if expired > 0 {
        event::notify(&json!({ "event": "leases", "expired": expired }));
    }
}

/// Expires all leases that have run out; `shard_expire_leases()` calls this.
pub fn expire_all() -> i64 {
    let mut expired = 0;
    for kind in kinds() {
        loop {
            let batch = settle::expire(&kind, LARGE_BATCH);
            expired += batch;
            if batch == 0 {
                break;
            }
            pgrx::check_for_interrupts!();
        }
    }
    notify(expired);
    i64::try_from(expired).unwrap_or(i64::MAX)
}

/// Does one batch of each kind, and returns how long nothing needs to be done.
pub fn turn() -> Duration {
    // If a crash undoes this, the next turn does it again.
    sql::write("SET LOCAL synchronous_commit = off", &[]);
    let expired: Vec<usize> = kinds().iter().map(|kind| settle::expire(kind, BATCH)).collect();
    notify(expired.iter().sum());
    free_slots::settle(ENTRIES);
    let more = archive() || expired.iter().any(|&count| count >= BATCH as usize);
    if more { Duration::ZERO } else { guc::lease_sweep_interval().min(until_next_lease()) }
}

/// Archives reservations that ended long ago. Returns true if there may be more.
fn archive() -> bool {
    let Some(retention) = guc::reservation_retention() else { return false };
    sql::write(
        "WITH old AS (DELETE FROM shardmaster.shard_reservation
                       WHERE id = ANY (ARRAY(SELECT id FROM shardmaster.shard_reservation
                                              WHERE ended_at < clock_timestamp() - make_interval(secs => $1)
                                              ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED))
                       RETURNING *)
         INSERT INTO shardmaster.shard_reservation_archive SELECT * FROM old",
        &[retention.as_secs_f64().into(), BATCH.into()],
    ) >= BATCH as usize
}

/// Returns the time until the next lease ends. Leases that have run out and still exist are locked by somebody: they
/// wait for the next interval.
fn until_next_lease() -> Duration {
    let seconds = sql::read_optional::<f64>(
        "SELECT min(extract(epoch FROM next.lease_expires_at - clock_timestamp()))::float8
           FROM (SELECT DISTINCT kind FROM shardmaster.shard) k,
                LATERAL (SELECT lease_expires_at FROM shardmaster.shard_reservation r
                          WHERE r.kind = k.kind AND r.status = 'pending'
                            AND r.lease_expires_at > (SELECT clock_timestamp())
                          ORDER BY r.lease_expires_at LIMIT 1) next",
        &[],
    );
    Duration::from_secs_f64(
        seconds.map_or(f64::from(u32::MAX), |seconds| seconds.clamp(0.01, f64::from(u32::MAX))),
    )
}

/// Returns the seconds since the end of the oldest lease that has run out and is not expired.
pub fn lateness() -> Option<f64> {
    sql::read_optional::<f64>(
        "SELECT max(extract(epoch FROM clock_timestamp() - oldest.lease_expires_at))::float8
           FROM (SELECT DISTINCT kind FROM shardmaster.shard) k,
                LATERAL (SELECT lease_expires_at FROM shardmaster.shard_reservation r
                          WHERE r.kind = k.kind AND r.status = 'pending' AND r.lease_expires_at IS NOT NULL
                          ORDER BY r.lease_expires_at LIMIT 1) oldest
          WHERE oldest.lease_expires_at < clock_timestamp()",
        &[],
    )
}
