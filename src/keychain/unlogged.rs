//! Statements with a secret in them are kept out of the server's log, whatever its settings say, and
//! out of sight once they run. What a statement does not show by its own text, a call within a
//! function of somebody else's, is not known here.

use pgrx::pg_sys;
use pgrx::pg_sys::elog::PgLogLevel;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the text of such a statement has in it, in letters of either size.
const NAME: &[u8] = b"shard_credential_set";
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
            // The statement itself is the message where it is hidden besides.
            let is_named =
                texts.into_iter().any(|text| has_name(text)) || may_execute_named(pg_sys::debug_query_string);
            report.output_to_server = !(is_named || within && !report.context.is_null());
            // Whoever waits for its next statement shows the last one, which may have failed before
            // anything of this library ran.
            if is_named && report.elevel >= PgLogLevel::ERROR as c_int {
                hide_activity();
            }
        }
        if let Some(next) = PREVIOUS.get().copied().flatten() {
            next(data);
        }
    }
}

/// # Safety
/// The text is NUL-terminated, or NULL.
unsafe fn may_execute_named(statement: *const c_char) -> bool {
    if statement.is_null() || !IS_NAMED.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: as the caller promises.
    executes(unsafe { CStr::from_ptr(statement) }.to_bytes())
}

/// Whether a text has an EXECUTE of something that may be prepared: neither of a right nor of a
/// trigger's function.
fn executes(text: &[u8]) -> bool {
    const WORD: &[u8] = b"execute";
    let starts = |at: usize, word: &[u8]| {
        text.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    (0..text.len()).filter(|at| starts(*at, WORD)).any(|at| {
        let rest = text.get(at + WORD.len()..).unwrap_or_default();
        let after = text.len() - rest.trim_ascii_start().len();
        ![b"on ".as_slice(), b"function ", b"procedure "].into_iter().any(|word| starts(after, word))
    })
}

/// # Safety
/// The text is NUL-terminated, or NULL.
unsafe fn has_name(text: *const c_char) -> bool {
    if text.is_null() {
        return false;
    }
    // SAFETY: as the caller promises.
    names(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// By how much the name may be moved on where its last letter falls on another one: most of a text is
/// passed over by its length, for every statement is looked at.
const STEPS: [u8; 256] = {
    let mut steps = [NAME.len() as u8; 256];
    let mut at = 0;
    while at + 1 < NAME.len() {
        steps[NAME[at] as usize] = (NAME.len() - 1 - at) as u8;
        steps[NAME[at].to_ascii_uppercase() as usize] = (NAME.len() - 1 - at) as u8;
        at += 1;
    }
    steps
};

/// Whether a text has the name.
pub fn names(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(window) = text.get(at..at + NAME.len()) {
        if window.eq_ignore_ascii_case(NAME) {
            return true;
        }
        let last = window.last().copied().unwrap_or_default();
        at += usize::from(STEPS.get(usize::from(last)).copied().unwrap_or(1));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{NAME, executes, names};

    #[test]
    fn an_execute_is_found_unless_it_executes_nothing_prepared() {
        for text in
            ["EXECUTE s('x')", "explain (analyze) execute  s", "CREATE TABLE t AS EXECUTE\ts", "EXECUTE"]
        {
            assert!(executes(text.as_bytes()), "{text}");
        }
        let others =
            ["GRANT EXECUTE  ON FUNCTION f TO r", "CREATE TRIGGER t EXECUTE FUNCTION f()", "SELECT 1"];
        for text in others {
            assert!(!executes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn the_name_is_found_wherever_it_stands() {
        let name = String::from_utf8(NAME.to_vec()).unwrap();
        for before in 0..45 {
            for filler in ["x", "_", "shard_", "t", "credential_se"] {
                let before: String = filler.chars().cycle().take(before).collect();
                for text in [format!("{before}{name}"), format!("{before}{}(1)", name.to_uppercase())] {
                    assert!(names(text.as_bytes()), "{text}");
                }
                let cut = format!("{before} {} {}", &name[1..], &name[..name.len() - 1]);
                assert!(!names(cut.as_bytes()), "{cut}");
            }
        }
        assert!(!names(b"") && !names(&NAME[1..]));
    }
}
