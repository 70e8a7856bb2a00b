//! Whether a session may set credentials. This is looked up when the session begins, before its first statement, and
//! again when statements with the function's name are analysed; the result is kept for other lines of the log, which
//! are written where nothing can be looked up.

use super::statement::NAME;
use crate::majors;
use crate::server::functions;
use pgrx::{pg_guard, pg_sys};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of the language of functions in C, in all versions.
const C_LANGUAGE: pg_sys::Oid = pg_sys::Oid::from_u32(13);

/// The server's setting that says whether the session's current role is a superuser.
const IS_SUPERUSER: &CStr = c"is_superuser";

static IS_LOOKED_UP: AtomicBool = AtomicBool::new(false);
static MAY: AtomicBool = AtomicBool::new(false);

/// Registers the callback. `_PG_init` of the postmaster calls this once.
pub fn register() {
    // SAFETY: the callback is a function of this library, which is never unloaded; processes are forked with it.
    unsafe { pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut()) };
}

/// Runs at the end of the session's first transaction, which the server uses to find its role and its database.
#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    // SAFETY: the transaction is about to commit; callbacks may still read in it.
    unsafe {
        if event == pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT
            && !IS_LOOKED_UP.load(Ordering::Relaxed)
            && pg_sys::MyDatabaseId != pg_sys::InvalidOid
        {
            may();
        }
    }
}

/// Returns what is known, without reading the catalog. Nobody may before the session has begun: the log lines of its
/// authentication contain no statement.
pub fn may_be_here() -> bool {
    // SAFETY: the setting is one of the server's own, whose value is a static text; nothing is allocated for it.
    let is_superuser = || unsafe {
        let value = pg_sys::GetConfigOption(IS_SUPERUSER.as_ptr(), true, false);
        !value.is_null() && CStr::from_ptr(value) == c"on"
    };
    MAY.load(Ordering::Relaxed) || IS_LOOKED_UP.load(Ordering::Relaxed) && is_superuser()
}

/// Looks it up, for the role that the session has taken and for its own. A function with its owner's rights has the
/// owner as the current role, which counts while the function runs.
///
/// # Safety
/// A transaction is open and has not failed.
pub unsafe fn may() -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let may = [pg_sys::GetOuterUserId(), pg_sys::GetSessionUserId()]
            .into_iter()
            .any(|role| pg_sys::superuser_arg(role) || may_call(role));
        MAY.store(may, Ordering::Relaxed);
        IS_LOOKED_UP.store(true, Ordering::Relaxed);
        let current = pg_sys::GetUserId();
        may || current != pg_sys::GetOuterUserId() && (pg_sys::superuser_arg(current) || may_call(current))
    }
}

/// Whether a role, or one that it may become by `SET ROLE`, may call a function of this name in C, which only
/// superusers can create.
///
/// # Safety
/// A transaction is open and has not failed.
unsafe fn may_call(role: pg_sys::Oid) -> bool {
    let mut may = false;
    // SAFETY: the caller keeps the promise above; each row of the catalog is read while it exists.
    unsafe {
        functions::each_named(NAME, |tuple, functions| {
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
            may |= row.prolang == C_LANGUAGE
                && (pg_sys::is_member_of_role_nosuper(role, row.proowner)
                    || may_become_caller(role, pg_sys::heap_copytuple(tuple), functions)
                    || may_execute(role, row.oid));
        });
    }
    may
}

/// Whether a role may call a function. For a function that is being dropped, the server would raise an error, which
/// must not end a session that begins.
///
/// # Safety
/// A transaction is open.
unsafe fn may_execute(role: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    // SAFETY: the caller keeps the promise above; an entry that was found in the cache stays there until a lock is
    // waited for.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as std::ffi::c_int;
        let none = pg_sys::Datum::from(0);
        pg_sys::SearchSysCacheExists(cache, function.into(), none, none, none)
            && majors::may_execute(role, function)
    }
}

/// Whether the role is a member, inheriting or not, of a role to whom the function was granted.
///
/// # Safety
/// The row is one of `pg_proc`, on which the caller has a lock.
unsafe fn may_become_caller(role: pg_sys::Oid, row: pg_sys::HeapTuple, functions: pg_sys::Relation) -> bool {
    // SAFETY: the caller keeps the promise above. The copies live as long as the transaction of the look-up, which is
    // short.
    unsafe {
        let mut is_null = false;
        let column = pg_sys::Anum_pg_proc_proacl as std::ffi::c_int;
        let rights = pg_sys::heap_getattr(row, column, (*functions).rd_att, &mut is_null);
        if is_null {
            return false;
        }
        let rights = pg_sys::pg_detoast_datum(rights.cast_mut_ptr()).cast::<pg_sys::Acl>();
        let mut roles = std::ptr::null_mut();
        let count = usize::try_from(pg_sys::aclmembers(rights, &mut roles)).unwrap_or(0);
        (0..count).any(|at| pg_sys::is_member_of_role_nosuper(role, *roles.add(at)))
    }
}
