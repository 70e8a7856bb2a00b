//! Whether the server loaded the library at its start, and what it runs for.

use pgrx::pg_sys;
use std::sync::atomic::{AtomicBool, Ordering};

static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether the server loaded the library at its start. Every process inherits the
/// answer from the postmaster.
pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Whether the server runs for pg_upgrade. Nothing of ours may then: a transaction id
/// that a worker draws is given out once more by the new cluster.
pub fn in_binary_upgrade() -> bool {
    // SAFETY: a plain flag, written once while the server starts.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Called from `_PG_init`: whether it runs at the server's start, which alone can register
/// processes, hooks and shared memory. A session that loads the library later cannot.
pub fn at_start() -> bool {
    // SAFETY: a plain flag of the server, written before _PG_init is called.
    let at_start = !in_binary_upgrade() && unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    PRELOADED.store(at_start, Ordering::Relaxed);
    at_start
}
