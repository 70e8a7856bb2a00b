//! What every worker does first.

use crate::majors::pqsignal;
use pgrx::prelude::*;
use std::ffi::CStr;

/// Installs the signal handlers of every worker and unblocks signals.
///
/// SIGTERM is handled by the server's own handler: the process ends at the next check for interrupts, which every wait
/// of the server makes. SIGINT keeps the server's handler, so a cancelled worker ends with an error and is started
/// again.
pub fn accept_signals() {
    unsafe extern "C-unwind" {
        fn die(signal: std::ffi::c_int);
        fn SignalHandlerForConfigReload(signal: std::ffi::c_int);
    }
    // SAFETY: both are the server's handlers, safe in any process with a latch; signals are unblocked only after they
    // are installed.
    unsafe {
        pqsignal(pg_sys::SIGTERM as i32, Some(die));
        pqsignal(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
        // A reload that came while this process started was ignored; it is made up for at the first wait.
        (&raw mut pg_sys::ConfigReloadPending).write_volatile(1);
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Pins the settings on which the workers' own queries rely against what the database or the role sets for its
/// sessions. It is called once a worker is connected.
pub fn pin_settings() {
    const SETTINGS: [(&CStr, &CStr); 25] = [
        // The worker keeps the role that it is connected as.
        (c"role", c"none"),
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"session_replication_role", c"origin"),
        (c"row_security", c"off"),
        (c"lock_timeout", c"0"),
        (c"statement_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        (c"default_transaction_deferrable", c"off"),
        (c"exit_on_error", c"off"),
        // These determine how its statements are read, and their results.
        (c"standard_conforming_strings", c"on"),
        (c"backslash_quote", c"safe_encoding"),
        (c"transform_null_equals", c"off"),
        (c"quote_all_identifiers", c"off"),
        (c"array_nulls", c"on"),
        (c"check_function_bodies", c"on"),
        (c"DateStyle", c"ISO, YMD"),
        (c"IntervalStyle", c"postgres"),
        (c"TimeZone", c"UTC"),
        (c"extra_float_digits", c"1"),
        (c"bytea_output", c"hex"),
        (c"client_encoding", c"UTF8"),
        (c"plan_cache_mode", c"auto"),
        (c"jit", c"off"),
    ];
    for (name, value) in SETTINGS {
        // SAFETY: the names and values are NUL-terminated, and every server has these settings.
        unsafe {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
}
