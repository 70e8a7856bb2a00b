//! Statements with a secret in them are out of sight of whoever looks at sessions and at statistics of
//! statements, from the moment that the server has analysed them: one that fails before its call, or
//! that has none (`PREPARE`, `EXPLAIN`), is shown by its session for as long as that is idle.

use super::setter;
use super::statement::{calls, names};
use super::unlogged::{hide_activity, hide_unnamed, note_named};
use crate::majors;
use pgrx::pg_sys;
use std::ffi::{CStr, c_char};

/// Called once, from `_PG_init` of the postmaster.
pub fn register() {
    // SAFETY: as it asks for. What it calls raises nothing that the statement itself would not meet next.
    unsafe { majors::on_statements(look) };
}

unsafe fn look(query: *mut pg_sys::Query, text: *const c_char) {
    // SAFETY: the server passes what it has analysed, and the text that it is from, or none.
    unsafe {
        let Some(query) = query.as_mut().filter(|_| !text.is_null()) else { return };
        let own_text = own_text(query, text);
        if names(own_text) && !setter::may() {
            return;
        }
        if calls(own_text) {
            hide_activity();
            note_named();
            // Of a statement without constants of its own pg_stat_statements keeps the whole text,
            // unless it has no number.
            if !query.utilityStmt.is_null() {
                query.queryId = 0;
            }
        } else if executes_named(query.utilityStmt) && setter::may() {
            hide_unnamed();
            query.queryId = 0;
        }
    }
}

/// Of one of several statements its own text alone: each byte is looked at once.
///
/// # Safety
/// The text is NUL-terminated, and the query's.
unsafe fn own_text<'a>(query: &pg_sys::Query, text: *const c_char) -> &'a [u8] {
    let start = usize::try_from(query.stmt_location).unwrap_or(0);
    // SAFETY: the server has found the statement there, in as many bytes as it says; none: up to the end.
    unsafe {
        let text = text.add(start);
        match usize::try_from(query.stmt_len) {
            Ok(length) if length > 0 => std::slice::from_raw_parts(text.cast(), length),
            _ => CStr::from_ptr(text).to_bytes(),
        }
    }
}

/// Whether it is an EXECUTE of a statement that has the name: its arguments are the secret.
///
/// # Safety
/// A node of the server's, analysed, or NULL.
unsafe fn executes_named(node: *mut pg_sys::Node) -> bool {
    // SAFETY: as the caller promises; what is prepared stays until it is deallocated.
    unsafe {
        let Some(execute) = execute_in(node).as_ref() else { return false };
        let prepared = pg_sys::FetchPreparedStatement(execute.name, false);
        prepared.as_ref().is_some_and(|prepared| {
            let source = (*prepared.plansource).query_string;
            !source.is_null() && calls(CStr::from_ptr(source).to_bytes())
        })
    }
}

/// The EXECUTE that a statement is, or that it explains or makes a table of; or NULL.
///
/// # Safety
/// As above.
unsafe fn execute_in(mut node: *mut pg_sys::Node) -> *mut pg_sys::ExecuteStmt {
    // SAFETY: as the caller promises: each node is of the type that its tag says.
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
