//! The time of the coordinator's next sweep of leases, in shared memory: a reservation wakes it only if its lease ends
//! earlier.

use crate::guc;
use crate::server::preload::preloaded;
use crate::server::{database, wake};
use pgrx::prelude::*;
use pgrx::{PgAtomic, pg_shmem_init};
use std::cell::OnceCell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// In the server's microseconds.
// SAFETY: this name is used once in this library.
static NEXT: PgAtomic<AtomicI64> = unsafe { PgAtomic::new(c"shardmaster sweep") };

/// Is called at the server's start.
pub fn register() {
    pg_shmem_init!(NEXT);
}

/// Sets the time until the next sweep.
pub fn set(pause: Duration) {
    if preloaded() {
        let pause = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
        NEXT.get().store(now().saturating_add(pause), Ordering::Relaxed);
    }
}

/// Whether a lease expirer handles this session's leases: its next sweep is not long overdue.
pub fn is_kept() -> bool {
    const LATE: i64 = 1_000_000;
    preloaded() && now().saturating_sub(NEXT.get().load(Ordering::Relaxed)) < LATE && is_served()
}

/// Whether this database is that of the lease expirer.
fn is_served() -> bool {
    thread_local! {
        static SERVED: OnceCell<bool> = const { OnceCell::new() };
    }
    SERVED.with(|served| *served.get_or_init(|| guc::database() == database::name()))
}

/// Returns the time until the next sweep.
pub fn left() -> Duration {
    let left = if preloaded() { NEXT.get().load(Ordering::Relaxed).saturating_sub(now()) } else { 0 };
    Duration::from_micros(u64::try_from(left).unwrap_or(0))
}

/// Wakes the lease expirer once the current transaction has committed, if it would otherwise sleep past the end of a lease.
pub fn sweep_on_commit(lease_ends: TimestampWithTimeZone) {
    if bring_forward(lease_ends) {
        wake::lease_expirer_on_commit();
    }
}

/// Brings the next sweep forward. Returns true if it would have come later.
fn bring_forward(to: TimestampWithTimeZone) -> bool {
    let to = pg_sys::TimestampTz::from(to);
    preloaded() && NEXT.get().fetch_min(to, Ordering::Relaxed) > to
}

fn now() -> i64 {
    // SAFETY: this reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}
