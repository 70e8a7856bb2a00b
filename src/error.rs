//! One failure type for all errors that a caller sees: SQLSTATE, message, detail and hint stand together where the
//! error is made. Rooms with many errors have a function for each in their `error.rs`.

use crate::clean;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int};

/// A SQLSTATE, five characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// The key is between two shards at the moment: the client tries again shortly.
    pub const BETWEEN_SHARDS: SqlState = SqlState(*b"SM002");
    /// No shard of this kind has free capacity.
    pub const NO_CAPACITY: SqlState = SqlState(*b"SM003");
    /// The tenant has used up its quota.
    pub const QUOTA_EXCEEDED: SqlState = SqlState(*b"SM004");
    /// The reservation is not live any more, or belongs to another holder.
    pub const NOT_RESERVED: SqlState = SqlState(*b"SM005");
    /// A row is longer than a split accepts.
    pub const ROW_TOO_LONG: SqlState = SqlState(*b"SM007");
    pub const NULL_NOT_ALLOWED: SqlState = SqlState(*b"22004");
    pub const INVALID_VALUE: SqlState = SqlState(*b"22023");
    pub const READ_ONLY: SqlState = SqlState(*b"25006");
    pub const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    pub const UNDEFINED_OBJECT: SqlState = SqlState(*b"42704");
    pub const DUPLICATE_OBJECT: SqlState = SqlState(*b"42710");
    pub const NOT_IN_STATE: SqlState = SqlState(*b"55000");
    pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState(*b"42501");
    pub const IN_USE: SqlState = SqlState(*b"55006");
    pub const CONNECTION_FAILURE: SqlState = SqlState(*b"08006");
    pub const UNSUPPORTED: SqlState = SqlState(*b"0A000");
    pub const TIMEOUT: SqlState = SqlState(*b"57014");
    pub const INTERNAL: SqlState = SqlState(*b"XX000");

    /// Parses a server's SQLSTATE; any text but five digits and letters becomes an internal error.
    pub fn parse(text: &str) -> SqlState {
        let is_code = text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        text.as_bytes().try_into().ok().filter(|_| is_code).map_or(SqlState::INTERNAL, SqlState)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// Returns the server's packed form: six bits for each character.
    fn packed(self) -> i32 {
        self.0
            .iter()
            .enumerate()
            .fold(0, |code, (i, c)| code | ((i32::from(*c) - i32::from(b'0')) & 0x3f) << (6 * i))
    }
}

/// An error as a caller sees it: the message is in PostgreSQL's style, the hint is a sentence.
#[derive(Clone, Debug)]
pub struct Failure {
    pub sqlstate: SqlState,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Failure {
        Failure { sqlstate, message: message.into(), detail: None, hint: None }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Failure {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Adds to the hint.
    pub fn more_hint(self, more: &str) -> Failure {
        let hint = self.hint.as_deref().map_or(more.to_owned(), |hint| format!("{hint} {more}"));
        self.hint(hint)
    }

    /// Returns the message and the hint in one line.
    pub fn in_one_line(&self) -> String {
        told(&self.message, self.hint.as_deref())
    }

    /// Returns the failure so that it can be shown and stored: it contains names from a shard.
    pub fn cleaned(&self) -> Failure {
        let more = |text: &Option<String>| text.as_deref().map(clean::printable);
        Failure {
            sqlstate: self.sqlstate,
            message: clean::printable(&self.message),
            detail: more(&self.detail),
            hint: more(&self.hint),
        }
    }
}

/// Refuses the value of an argument.
pub fn invalid(argument: &str, problem: impl std::fmt::Display) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("invalid value for \"{argument}\": {problem}"))
}

pub fn on_standby(function: &str) -> Failure {
    Failure::new(SqlState::READ_ONLY, format!("cannot execute {function}() on a standby"))
        .hint("Run it on the primary.")
}

/// Refuses a call from the code of an index or of a materialized view, in any session or process of the server that
/// maintains it: the session's user has not asked for it.
pub fn restricted(function: &str) -> Failure {
    let message = format!("cannot execute {function}() within a security-restricted operation");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .hint("Call it directly, not in an expression of an index or a materialized view.")
}

/// Warns the client.
#[track_caller]
pub fn warn(text: impl Into<Cow<'static, str>>, hint: impl Into<String>) {
    ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, text, "shardmaster")
        .set_hint(hint)
        .report(PgLogLevel::WARNING);
}

#[track_caller]
pub fn notice(text: impl Into<Cow<'static, str>>, hint: impl Into<String>) {
    ErrorReport::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, text, "shardmaster")
        .set_hint(hint)
        .report(PgLogLevel::NOTICE);
}

/// Raises the error, from where nothing returns a result.
#[track_caller]
pub fn raise(failure: Failure) -> ! {
    ErrorReport::from(failure).report(PgLogLevel::ERROR);
    unreachable!("an error was raised")
}

/// Returns a message and its hint in one line.
pub fn told(message: &str, hint: Option<&str>) -> String {
    match hint {
        // Some messages end with a question mark.
        Some(hint) if message.ends_with(['.', '?', '!']) => format!("{message} {hint}"),
        Some(hint) => format!("{message}. {hint}"),
        None => message.to_owned(),
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// The boundary to SQL: `?` in a `#[pg_extern]` converts here.
impl From<Failure> for ErrorReport {
    fn from(failure: Failure) -> ErrorReport {
        let failure = failure.cleaned();
        let code = PgSqlErrorCode::from(failure.sqlstate.packed());
        if code as isize != failure.sqlstate.packed() as isize {
            raise_own(failure);
        }
        let mut report = ErrorReport::new(code, failure.message, "shardmaster");
        if let Some(detail) = failure.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = failure.hint {
            report = report.set_hint(hint);
        }
        report
    }
}

/// Returns the value of an argument, or an error if it is NULL.
pub fn required<T>(value: Option<T>, name: &str) -> Result<T, Failure> {
    value.ok_or_else(|| {
        Failure::new(SqlState::NULL_NOT_ALLOWED, format!("argument \"{name}\" must not be NULL"))
    })
}

unsafe extern "C-unwind" {
    fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    fn errcode(sqlerrcode: c_int) -> c_int;
    fn errmsg(fmt: *const c_char, ...) -> c_int;
    fn errdetail(fmt: *const c_char, ...) -> c_int;
    fn errhint(fmt: *const c_char, ...) -> c_int;
    fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
}

/// Raises one of this extension's own SQLSTATEs. pgrx's enum of codes is closed, so this calls the server's functions
/// directly.
fn raise_own(failure: Failure) -> ! {
    let code = failure.sqlstate.packed();
    let message = palloc_string(&failure.message);
    let detail = failure.detail.as_deref().map(palloc_string);
    let hint = failure.hint.as_deref().map(palloc_string);
    drop(failure);
    // SAFETY: errstart(ERROR) returns true and errfinish does not return. It leaves by longjmp to the server's
    // handler, past frames that hold only what the arguments of one SQL function own: the rest is palloc'd and freed
    // with its memory context.
    unsafe {
        errstart(PgLogLevel::ERROR as c_int, std::ptr::null());
        errcode(code);
        errmsg(c"%s".as_ptr(), message);
        if let Some(detail) = detail {
            errdetail(c"%s".as_ptr(), detail);
        }
        if let Some(hint) = hint {
            errhint(c"%s".as_ptr(), hint);
        }
        errfinish(c"shardmaster".as_ptr(), 0, c"shardmaster".as_ptr());
    }
    unreachable!("errfinish returned from an ERROR")
}

/// Copies the text into the current memory context, cut at the first NUL.
fn palloc_string(text: &str) -> *const c_char {
    let bytes = text.split('\0').next().unwrap_or_default();
    let owned = CString::new(bytes).unwrap_or_default();
    // SAFETY: pstrdup copies a NUL-terminated string.
    unsafe { pgrx::pg_sys::pstrdup(owned.as_ptr()) }
}

/// Keeps backtraces of this library out of the errors for clients, whatever RUST_BACKTRACE is in the server's
/// environment. The standard library reads the variable once, so this makes it read while the variable is 0, and then
/// restores the variable for all others.
pub fn without_backtraces() {
    const VARIABLE: &str = "RUST_LIB_BACKTRACE";
    let before = std::env::var_os(VARIABLE);
    // SAFETY: this is called when the library is loaded, by a process with one thread.
    unsafe { std::env::set_var(VARIABLE, "0") };
    drop(std::backtrace::Backtrace::capture());
    match before {
        // SAFETY: as above.
        Some(value) => unsafe { std::env::set_var(VARIABLE, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(VARIABLE) },
    }
}
