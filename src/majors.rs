//! Differences between the supported versions of the server: one function for each, so that no other module checks the
//! version.

use pgrx::{pg_guard, pg_sys};
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

#[cfg(not(feature = "pg18"))]
pub use pg_sys::pqsignal;
#[cfg(feature = "pg18")]
pub use pg_sys::pqsignal_be as pqsignal;

/// Declares that settings with this prefix belong to the library. PostgreSQL 13 and 14 only warn of undefined ones.
///
/// # Safety
/// This is called in `_PG_init`, after the settings are defined.
pub unsafe fn reserve_prefix(prefix: &'static CStr) {
    // SAFETY: this is a static C string; the server copies it.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14"))]
        pg_sys::EmitWarningsOnPlaceholders(prefix.as_ptr());
        #[cfg(not(any(feature = "pg13", feature = "pg14")))]
        pg_sys::MarkGUCPrefixReserved(prefix.as_ptr());
    }
}

/// Creates a set of events to wait for, which the caller frees. Since PostgreSQL 17, an error frees it with the
/// current resource owner; before, an error frees only its memory, and its descriptors stay open until the process
/// ends.
///
/// # Safety
/// The process is connected to the server.
pub unsafe fn create_wait_event_set(events: c_int) -> *mut pg_sys::WaitEventSet {
    // SAFETY: the caller keeps the promise above; both variables are plain pointers of this process.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16"))]
        return pg_sys::CreateWaitEventSet(pg_sys::CurrentMemoryContext, events);
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        pg_sys::CreateWaitEventSet(pg_sys::CurrentResourceOwner, events)
    }
}

/// Whether a role owns a database or an extension, or has the rights of its owner.
///
/// # Safety
/// A transaction is open, and the object exists.
pub unsafe fn owns(role: pg_sys::Oid, class: pg_sys::Oid, object: pg_sys::Oid) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        return if class == pg_sys::DatabaseRelationId {
            pg_sys::pg_database_ownercheck(object, role)
        } else {
            pg_sys::pg_extension_ownercheck(object, role)
        };
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        pg_sys::object_ownercheck(class, object, role)
    }
}

/// Whether a role may call a function.
///
/// # Safety
/// A transaction is open, and the function exists.
pub unsafe fn may_execute(role: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
    // SAFETY: the caller keeps the promise above.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        let result = pg_sys::pg_proc_aclcheck(function, role, mode);
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        let result = pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function, role, mode);
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Returns the only path by which a foreign table is read, with these costs.
///
/// # Safety
/// The planner calls this.
pub unsafe fn foreign_scan_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    startup: f64,
    total: f64,
) -> *mut pg_sys::ForeignPath {
    use std::ptr::null_mut;
    // SAFETY: the caller keeps the promise above; the path promises neither an order nor outer relations.
    unsafe {
        pg_sys::create_foreignscan_path(
            root,
            relation,
            null_mut(),
            (*relation).rows,
            #[cfg(feature = "pg18")]
            0,
            startup,
            total,
            null_mut(),
            (*relation).lateral_relids,
            null_mut(),
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            null_mut(),
            null_mut(),
        )
    }
}

/// Begins a scan of an index with this many keys.
///
/// # Safety
/// Both relations are open and locked; the snapshot is registered or active until the scan ends.
pub unsafe fn index_beginscan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: c_int,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller keeps the promise above; no instrumentation is passed.
    unsafe {
        #[cfg(feature = "pg18")]
        return pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), keys, 0);
        #[cfg(not(feature = "pg18"))]
        pg_sys::index_beginscan(table, index, snapshot, keys, 0)
    }
}

/// Returns the text of a string node, which may be NULL.
///
/// # Safety
/// The node is a valid string node.
pub unsafe fn string_value(node: *mut pg_sys::Node) -> *mut c_char {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14"))]
        return (*node.cast::<pg_sys::Value>()).val.str_;
        #[cfg(not(any(feature = "pg13", feature = "pg14")))]
        (*node.cast::<pg_sys::String>()).sval
    }
}

/// A function that is called with each statement after its analysis, and with the text that contains it.
type OfStatement = unsafe fn(*mut pg_sys::Query, *const c_char);

static OF_STATEMENT: OnceLock<(OfStatement, pg_sys::post_parse_analyze_hook_type)> = OnceLock::new();

/// Installs a function in the chain of the hook for analysed statements.
///
/// # Safety
/// This is called once, in `_PG_init` of the postmaster. The function runs for every statement and raises no errors of
/// its own.
pub unsafe fn on_statements(told: OfStatement) {
    // SAFETY: nothing else runs in the postmaster while it loads libraries.
    unsafe {
        if OF_STATEMENT.set((told, pg_sys::post_parse_analyze_hook)).is_ok() {
            pg_sys::post_parse_analyze_hook = Some(of_statement);
        }
    }
}

#[cfg(feature = "pg13")]
#[pg_guard]
unsafe extern "C-unwind" fn of_statement(state: *mut pg_sys::ParseState, query: *mut pg_sys::Query) {
    let Some((told, previous)) = OF_STATEMENT.get() else { return };
    // SAFETY: the server's arguments are passed on unchanged.
    unsafe {
        if let Some(previous) = previous {
            previous(state, query);
        }
        told(query, (*state).p_sourcetext);
    }
}

#[cfg(not(feature = "pg13"))]
#[pg_guard]
unsafe extern "C-unwind" fn of_statement(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumbled: *mut pg_sys::JumbleState,
) {
    let Some((told, previous)) = OF_STATEMENT.get() else { return };
    // SAFETY: the server's arguments are passed on unchanged.
    unsafe {
        if let Some(previous) = previous {
            previous(state, query, jumbled);
        }
        told(query, (*state).p_sourcetext);
    }
}
