//! Keeps statements with a secret out of the server's log, whatever its settings are, and hides them once they run. A
//! call inside a function of somebody else, which the statement's own text does not show, is not known here. Nothing
//! is kept out for roles that may not make the call: they know no secret of a shard, and a call that is never reached
//! would hide everything beside it.

use crate::keychain::setter;
use crate::keychain::statement::{calls, executes, names};
use pgrx::pg_sys;
use pgrx::pg_sys::elog::PgLogLevel;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The text that is shown instead of the statement.
const INSTEAD: &CStr = c"a credential is set";
/// The text that is shown instead of a statement that makes the call without naming the function.
const UNNAMED: &CStr = c"shard_credential_set";

/// Whether this session has had a statement with the name, so that one of its EXECUTEs may contain a secret without
/// the name.
static IS_NAMED: AtomicBool = AtomicBool::new(false);

static PREVIOUS: OnceLock<pg_sys::emit_log_hook_type> = OnceLock::new();

/// Installs the hook. `_PG_init` of the postmaster calls this once.
pub fn register() {
    // SAFETY: nothing else runs in the postmaster while it loads libraries.
    unsafe {
        if PREVIOUS.set(pg_sys::emit_log_hook).is_ok() {
            pg_sys::emit_log_hook = Some(look);
        }
    }
}

/// Hides the running statement from monitors of sessions and from errors.
pub fn hide_statement() {
    hide_activity();
    // SAFETY: the text is static; the server keeps the pointer until the statement ends.
    unsafe { pg_sys::debug_query_string = INSTEAD.as_ptr() };
}

/// Hides a running statement that contains a secret but not the name, which is kept out of the log until it ends.
pub fn hide_unnamed() {
    hide_activity();
    // SAFETY: as above.
    unsafe { pg_sys::debug_query_string = UNNAMED.as_ptr() };
}

/// Keeps this session's EXECUTEs out of the log from now on: a line that is written before the analysis of one, or
/// when the analysis fails, does not tell what it executes.
pub fn note_named() {
    IS_NAMED.store(true, Ordering::Relaxed);
}

/// Hides the statement, and its later state, from views of sessions.
pub fn hide_activity() {
    // SAFETY: the server copies the text into memory that it already has, and raises nothing.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, INSTEAD.as_ptr()) };
}

/// Neither allocates nor raises while an error is reported. The server lets a hook only suppress the line of the log.
unsafe extern "C-unwind" fn look(data: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes the report that it is about to write; its texts and the statement's are
    // NUL-terminated, or NULL.
    unsafe {
        if let Some(report) = data.as_mut().filter(|report| report.output_to_server)
            && let is_secret = is_secret(report)
            && may_set(report, is_secret)
        {
            // The context of such a call contains its parameters, in whatever language.
            let within = std::ptr::eq(pg_sys::debug_query_string, INSTEAD.as_ptr());
            report.output_to_server = !(is_secret || within && !report.context.is_null());
            // A session that waits for its next statement shows the last one, which may have failed before any code of
            // this library ran.
            if is_secret && is_error(report) {
                hide_activity();
            }
        }
        if let Some(next) = PREVIOUS.get().copied().flatten() {
            next(data);
        }
    }
}

/// Whether the session may set credentials. A line with a statement that is about to be analysed, or has been run, is
/// written where the server's catalog may be read; nearly all secret lines are of this kind. The others use the last
/// result.
///
/// # Safety
/// The report comes from the server.
unsafe fn may_set(report: &pg_sys::ErrorData, is_secret: bool) -> bool {
    // SAFETY: the caller keeps the promise above; the transaction continues.
    unsafe {
        let statement = bytes(pg_sys::debug_query_string);
        let is_of_statement = !statement.is_empty() && bytes(report.message).ends_with(statement);
        let may_look = pg_sys::IsTransactionState() && pg_sys::CritSectionCount == 0;
        if is_secret && is_of_statement && !is_error(report) && may_look {
            setter::may()
        } else {
            setter::may_be_here()
        }
    }
}

fn is_error(report: &pg_sys::ErrorData) -> bool {
    report.elevel >= PgLogLevel::ERROR as c_int
}

/// Whether the line contains a statement that is given a secret, or a part of one.
///
/// # Safety
/// The report comes from the server.
unsafe fn is_secret(report: &pg_sys::ErrorData) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let statement = bytes(pg_sys::debug_query_string);
        if std::ptr::eq(pg_sys::debug_query_string, UNNAMED.as_ptr())
            || calls(statement)
            || IS_NAMED.load(Ordering::Relaxed) && executes(statement)
        {
            return true;
        }
        // A message that ends with the statement is only about that statement. If the statement has been hidden
        // meanwhile, the message still contains it.
        let message = bytes(report.message);
        let is_of_statement = !statement.is_empty() && message.ends_with(statement);
        let parts = [report.context, report.internalquery, report.detail, report.detail_log];
        !is_of_statement && !is_error(report) && names(message)
            || parts.into_iter().any(|part| names(bytes(part)))
    }
}

/// # Safety
/// The text is NUL-terminated, or NULL, and lives as long as the result.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller keeps the promise above.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
