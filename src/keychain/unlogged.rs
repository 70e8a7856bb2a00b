//! Statements with a secret in them are kept out of the server's log, whatever its settings say, and
//! out of sight once they run. What a statement does not show by its own text, a call within a
//! function of somebody else's, is not known here.

use pgrx::pg_sys;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

/// What the text of such a statement has in it, in letters of either size.
const NAME: &[u8] = b"shard_credential_set";
/// What stands in its place.
const INSTEAD: &CStr = c"a credential is set";

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
    // SAFETY: the server copies the one, and keeps the other, which lives for ever, until the
    // statement ends.
    unsafe {
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, INSTEAD.as_ptr());
        pg_sys::debug_query_string = INSTEAD.as_ptr();
    }
}

/// Neither allocates nor raises: it runs while an error is reported. To keep a line out of the log is
/// all that the server lets a hook do with it.
unsafe extern "C-unwind" fn look(data: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes the report that it is about to write; its texts and the statement's
    // are NUL-terminated, or NULL.
    unsafe {
        if let Some(report) = data.as_mut().filter(|report| report.output_to_server) {
            let statement = if report.hide_stmt { std::ptr::null() } else { pg_sys::debug_query_string };
            let texts = [
                report.message.cast_const(),
                report.detail.cast_const(),
                report.detail_log.cast_const(),
                report.context.cast_const(),
                report.internalquery.cast_const(),
                statement,
            ];
            // A context of such a call has its parameters in it, in words of whatever language.
            let within = std::ptr::eq(pg_sys::debug_query_string, INSTEAD.as_ptr());
            report.output_to_server =
                !(within && !report.context.is_null() || texts.into_iter().any(|text| has_name(text)));
        }
        if let Some(next) = PREVIOUS.get().copied().flatten() {
            next(data);
        }
    }
}

/// # Safety
/// The text is NUL-terminated, or NULL.
unsafe fn has_name(text: *const c_char) -> bool {
    if text.is_null() {
        return false;
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    text.windows(NAME.len()).any(|window| window.eq_ignore_ascii_case(NAME))
}
