//! Statements with a secret in them are kept out of the server's log, whatever its settings say, and
//! out of sight once they run. What a statement does not show by its own text, a call within a
//! function of somebody else's, is not known here. Of roles that may not make the call nothing is kept out: no secret of a
//! shard is theirs, and a call that is never reached would hide all that stands beside it.

use super::setter;
use super::statement::{calls, executes, names};
use pgrx::pg_sys;
use pgrx::pg_sys::elog::PgLogLevel;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What stands in its place.
const INSTEAD: &CStr = c"a credential is set";
/// In the place of a statement that calls it without naming it.
const UNNAMED: &CStr = c"shard_credential_set";

/// Whether this session has had a statement that has the name, so that one of its EXECUTEs may have a
/// secret and not the name.
static IS_NAMED: AtomicBool = AtomicBool::new(false);

static PREVIOUS: OnceLock<pg_sys::emit_log_hook_type> = OnceLock::new();

/// Chains the hook; called once, from `_PG_init` of the postmaster.
pub fn register() {
    // SAFETY: in the postmaster nothing else runs while it loads libraries.
    unsafe {
        if PREVIOUS.set(pg_sys::emit_log_hook).is_ok() {
            pg_sys::emit_log_hook = Some(look);
        }
    }
}

/// From here on neither a monitor's look at sessions nor an error shows the statement that runs.
pub fn hide_statement() {
    hide_activity();
    // SAFETY: the server keeps it, which lives for ever, until the statement ends.
    unsafe { pg_sys::debug_query_string = INSTEAD.as_ptr() };
}

/// The same of a statement that has a secret and not the name, which is kept out of the log until it
/// ends.
pub fn hide_unnamed() {
    hide_activity();
    // SAFETY: as above.
    unsafe { pg_sys::debug_query_string = UNNAMED.as_ptr() };
}

/// From here on this session's EXECUTEs are kept out of the log: a line that is written before one is
/// analysed, or of one that cannot be, does not tell what it would have executed.
pub fn note_named() {
    IS_NAMED.store(true, Ordering::Relaxed);
}

/// From here on no look at sessions shows the statement, nor what has become of it.
pub fn hide_activity() {
    // SAFETY: the server copies the text, into memory that it has; it raises nothing.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, INSTEAD.as_ptr()) };
}

/// Neither allocates nor raises while an error is reported. To keep a line out of the log is
/// all that the server lets a hook do with it.
unsafe extern "C-unwind" fn look(data: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes the report that it is about to write; its texts and the statement's
    // are NUL-terminated, or NULL.
    unsafe {
        if let Some(report) = data.as_mut().filter(|report| report.output_to_server)
            && let is_secret = is_secret(report)
            && may_set(report, is_secret)
        {
            // A context of such a call has its parameters in it, in words of whatever language.
            let within = std::ptr::eq(pg_sys::debug_query_string, INSTEAD.as_ptr());
            report.output_to_server = !(is_secret || within && !report.context.is_null());
            // Whoever waits for its next statement shows the last one, which may have failed before
            // anything of this library ran.
            if is_secret && is_error(report) {
                hide_activity();
            }
        }
        if let Some(next) = PREVIOUS.get().copied().flatten() {
            next(data);
        }
    }
}

/// Whether the session may set credentials. A line with the statement that is about to be analysed, or has been run, is
/// written where the server's catalog may be read, and is nearly all that does; the others go by what was seen last.
///
/// # Safety
/// A report of the server's.
unsafe fn may_set(report: &pg_sys::ErrorData, is_secret: bool) -> bool {
    // SAFETY: as the caller promises; the transaction goes on.
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

/// Whether the line has a statement that is given a secret, or a part of one.
///
/// # Safety
/// A report of the server's.
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
        // A message that ends with the statement is about that alone. Where it has been hidden by now the message still
        // has it.
        let message = bytes(report.message);
        let is_of_statement = !statement.is_empty() && message.ends_with(statement);
        let parts = [report.context, report.internalquery, report.detail, report.detail_log];
        !is_of_statement && !is_error(report) && names(message)
            || parts.into_iter().any(|part| names(bytes(part)))
    }
}

/// # Safety
/// The text is NUL-terminated, or NULL, and lives as long as what is returned.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller keeps the promise above.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
