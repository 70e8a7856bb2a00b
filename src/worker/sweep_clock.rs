//! When the coordinator looks at leases next, in shared memory: a reservation wakes it
//! only if its lease ends before that.

use super::preloaded;
use pgrx::prelude::*;
use pgrx::{PgAtomic, pg_shmem_init};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// In the server's microseconds.
// SAFETY: named once in this library.
static NEXT: PgAtomic<AtomicI64> = unsafe { PgAtomic::new(c"shardmaster sweep") };

/// At the server's start.
pub fn register() {
    pg_shmem_init!(NEXT);
}

/// The coordinator sleeps for so long.
pub fn set(pause: Duration) {
    if preloaded() {
        // SAFETY: reads the clock.
        let now = unsafe { pg_sys::GetCurrentTimestamp() };
        let pause = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
        NEXT.get().store(now.saturating_add(pause), Ordering::Relaxed);
    }
}

/// Whether it sleeps longer than until then.
pub fn is_after(at: TimestampWithTimeZone) -> bool {
    preloaded() && NEXT.get().load(Ordering::Relaxed) > pg_sys::TimestampTz::from(at)
}
