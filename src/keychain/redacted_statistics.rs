//! Hides statements with a secret from views of sessions and from statistics of statements, from the moment when the
//! server has analysed them: otherwise, the session would show a statement that fails before its call, or that makes
//! none (`PREPARE`, `EXPLAIN`), as long as it is idle.

use crate::keychain::redacted_log::{hide_activity, hide_unnamed, note_named};
use crate::keychain::setter;
use crate::keychain::statement::{calls, names};
use crate::majors;
use pgrx::pg_sys;
use std::ffi::{CStr, c_char};

/// `_PG_init` of the postmaster calls this once.
pub fn register() {
    // SAFETY: this is called as required. The function raises nothing that the statement itself would not raise next.
    unsafe { majors::on_statements(look) };
}

unsafe fn look(query: *mut pg_sys::Query, text: *const c_char) {
    // SAFETY: the server passes the query that it has analysed, and the text that contains it, or NULL.
    unsafe {
        let Some(query) = query.as_mut().filter(|_| !text.is_null()) else { return };
        let own_text = own_text(query, text);
        if names(own_text) && !setter::may() {
            return;
        }
        if calls(own_text) {
            hide_activity();
            note_named();
            // pg_stat_statements keeps the whole text of a statement without constants of its own, unless the
            // statement has no query identifier.
            if !query.utilityStmt.is_null() {
                query.queryId = 0;
            }
        } else if executes_named(query.utilityStmt) && setter::may() {
            hide_unnamed();
            query.queryId = 0;
        }
    }
}

/// Returns the statement's own text, if the query text contains several: each byte is read once.
///
/// # Safety
/// The text is NUL-terminated, and belongs to the query.
unsafe fn own_text<'a>(query: &pg_sys::Query, text: *const c_char) -> &'a [u8] {
    let start = usize::try_from(query.stmt_location).unwrap_or(0);
    // SAFETY: the server has found the statement there, in as many bytes as it records; without a length, it extends
    // to the end.
    unsafe {
        let text = text.add(start);
        match usize::try_from(query.stmt_len) {
            Ok(length) if length > 0 => std::slice::from_raw_parts(text.cast(), length),
            _ => CStr::from_ptr(text).to_bytes(),
        }
    }
}

/// Whether this is an EXECUTE of a statement that contains the name: its arguments are the secret.
///
/// # Safety
/// The node is an analysed one from the server, or NULL.
unsafe fn executes_named(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the caller keeps the promise above; a prepared statement stays until it is deallocated.
    unsafe {
        let Some(execute) = execute_in(node).as_ref() else { return false };
        let prepared = pg_sys::FetchPreparedStatement(execute.name, false);
        prepared.as_ref().is_some_and(|prepared| {
            let source = (*prepared.plansource).query_string;
            !source.is_null() && calls(CStr::from_ptr(source).to_bytes())
        })
    }
}

/// Returns the EXECUTE that a statement is, explains, or makes a table of; or NULL.
///
/// # Safety
/// The node is an analysed one from the server, or NULL.
unsafe fn execute_in(mut node: *mut pg_sys::Node) -> *mut pg_sys::ExecuteStmt {
    // SAFETY: the caller keeps the promise above; each node is of the type that its tag records.
    unsafe {
        while !node.is_null() {
            node = match (*node).type_ {
                pg_sys::NodeTag::T_ExecuteStmt => return node.cast(),
                pg_sys::NodeTag::T_ExplainStmt => (*node.cast::<pg_sys::ExplainStmt>()).query,
                pg_sys::NodeTag::T_CreateTableAsStmt => (*node.cast::<pg_sys::CreateTableAsStmt>()).query,
                pg_sys::NodeTag::T_Query => (*node.cast::<pg_sys::Query>()).utilityStmt,
                _ => break,
            };
        }
        std::ptr::null_mut()
    }
}
