//! Whether a session may set credentials at all. It is looked up where the session begins, before its first statement, and
//! again where statements with the name are analysed; it is remembered for what else is written to the log, where nothing can
//! be looked up.

use super::statement::NAME;
use crate::majors;
use pgrx::{pg_guard, pg_sys};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Of functions in C, in all versions.
const C_LANGUAGE: pg_sys::Oid = pg_sys::Oid::from_u32(13);

/// The server's setting that says whether the session's current role is a superuser.
const IS_SUPERUSER: &CStr = c"is_superuser";

static IS_LOOKED_UP: AtomicBool = AtomicBool::new(false);
static MAY: AtomicBool = AtomicBool::new(false);

/// Chains the callback; called once, from `_PG_init` of the postmaster.
pub fn register() {
    // SAFETY: the callback is a function of this library, which is never unloaded; processes are forked with it.
    unsafe { pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut()) };
}

/// A session begins with a transaction of its own, in which it finds its role and its database.
#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    // SAFETY: a transaction that is about to commit, in which callbacks may still read.
    unsafe {
        if event == pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT
            && !IS_LOOKED_UP.load(Ordering::Relaxed)
            && pg_sys::MyDatabaseId != pg_sys::InvalidOid
        {
            may();
        }
    }
}

/// As far as is known, without a look at the catalog. Before the session has begun nobody may: what is written of its
/// authentication has no statement.
pub fn may_be_here() -> bool {
    // SAFETY: the setting is one of the server's own, whose value is a static text; nothing is allocated for it.
    let is_superuser = || unsafe {
        let value = pg_sys::GetConfigOption(IS_SUPERUSER.as_ptr(), true, false);
        !value.is_null() && CStr::from_ptr(value) == c"on"
    };
    MAY.load(Ordering::Relaxed) || IS_LOOKED_UP.load(Ordering::Relaxed) && is_superuser()
}

/// Looks it up, for the role that the session has taken and for its own. That of a function with its owner's rights, which is
/// the current one within it, counts as long as it runs.
///
/// # Safety
/// In a transaction that has not failed.
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

/// Whether a role, or one that it may become by `SET ROLE`, may call a function of this name in C, which superusers alone
/// make.
///
/// # Safety
/// As above.
unsafe fn may_call(role: pg_sys::Oid) -> bool {
    let mut may = false;
    // SAFETY: rows of a catalog, each read while it is there; what is opened here is closed here. The name lives as
    // long as the scan.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let functions = pg_sys::table_open(pg_sys::ProcedureRelationId, lock);
        let mut wanted = pg_sys::NameData::default();
        for (to, byte) in wanted.data.iter_mut().zip(NAME) {
            *to = *byte as std::ffi::c_char;
        }
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_proc_proname as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_NAMEEQ.into(),
            pg_sys::Datum::from(&raw mut wanted),
        );
        let index = pg_sys::Oid::from(pg_sys::ProcedureNameArgsNspIndexId);
        let scan = pg_sys::systable_beginscan(functions, index, true, std::ptr::null_mut(), 1, &mut key);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
            may |= row.prolang == C_LANGUAGE
                && (pg_sys::is_member_of_role_nosuper(role, row.proowner)
                    || may_become_caller(role, pg_sys::heap_copytuple(tuple), functions)
                    || may_execute(role, row.oid));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(functions, lock);
    }
    may
}

/// Of a function that is dropped at this moment the server would say so by an error, which must not end a session that begins.
///
/// # Safety
/// In a transaction.
unsafe fn may_execute(role: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    // SAFETY: as the caller promises; what has been found in the cache stays there until a lock is waited for.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as std::ffi::c_int;
        let none = pg_sys::Datum::from(0);
        pg_sys::SearchSysCacheExists(cache, function.into(), none, none, none)
            && majors::may_execute(role, function)
    }
}

/// Whether the role is a member, inheriting or not, of one to whom the function was granted.
///
/// # Safety
/// A row of `pg_proc`, of which the caller has a lock.
unsafe fn may_become_caller(role: pg_sys::Oid, row: pg_sys::HeapTuple, functions: pg_sys::Relation) -> bool {
    // SAFETY: as the caller promises. What is copied lives as long as the transaction that looks, which is short.
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
