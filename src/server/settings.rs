//! Settings for a body of code, like a function's SET clauses.

use pgrx::pg_sys;
use std::ffi::CStr;

/// Runs the body with these settings. An error aborts the (sub)transaction, which restores them.
pub fn with<R>(settings: &[(&CStr, &CStr)], body: impl FnOnce() -> R) -> R {
    // SAFETY: this runs in a transaction; what is set here is restored below, or by an abort.
    let nest = unsafe {
        let nest = pg_sys::NewGUCNestLevel();
        for (name, value) in settings {
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        nest
    };
    let result = body();
    // SAFETY: as above.
    unsafe { pg_sys::AtEOXact_GUC(true, nest) };
    result
}
