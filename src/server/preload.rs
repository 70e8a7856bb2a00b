//! Whether the server loaded the library at its start, and what it runs for.

use pgrx::pg_sys;
use std::sync::atomic::{AtomicBool, Ordering};

static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether the server loaded the library at its start. Every process inherits the answer from the postmaster.
pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Whether the server runs for pg_upgrade. Nothing of the extension may run then: the new cluster would give out a
/// transaction id once more that a worker has used.
pub fn in_binary_upgrade() -> bool {
    // SAFETY: this is a plain flag, written once while the server starts.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Notes whether `_PG_init`, which calls this, runs at the server's start. Only then processes, hooks and shared
/// memory can be registered. A session that loads the library later cannot.
pub fn at_start() -> bool {
    // SAFETY: this is a plain flag of the server, written before _PG_init is called.
    let at_start = !in_binary_upgrade() && unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    PRELOADED.store(at_start, Ordering::Relaxed);
    at_start
}
