//! Acting as the owner of the catalog, where SECURITY DEFINER and SET clauses of a
//! function would cost more than what it mostly does.

use super::cache::signal_table;
use crate::server::settings;
use pgrx::prelude::*;

/// Settings that a query of the catalog needs: names are resolved in no schema of the
/// caller, and a plan that was made while the tables were tiny must not stay.
const SETTINGS: [(&std::ffi::CStr, &std::ffi::CStr); 2] =
    [(c"search_path", c"pg_catalog, pg_temp"), (c"enable_seqscan", c"off")];

/// What a plan without scans is said to cost would have the server compile each, which takes half a second. Not among
/// the settings: another one there would cost each route a tenth.
struct Uncompiled(bool);

impl Uncompiled {
    fn begin() -> Uncompiled {
        // SAFETY: the server's own variable, in its only thread; `drop` puts it back, behind an error too.
        unsafe {
            let before = Uncompiled(pg_sys::jit_enabled);
            pg_sys::jit_enabled = false;
            before
        }
    }
}

impl Drop for Uncompiled {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::jit_enabled = self.0 }
    }
}

/// As the server does it for a SECURITY DEFINER function with SET clauses. An error leaves
/// by aborting the (sub)transaction, which puts back role and settings.
pub fn as_owner<R>(body: impl FnOnce() -> R) -> R {
    let Some(owner) = owner() else { return body() };
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: in a transaction; what is set here is put back below, or by an abort.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(owner, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
    }
    let compiles = Uncompiled::begin();
    let result = settings::with(&SETTINGS, body);
    drop(compiles);
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    result
}

/// The role that owns the catalog; None while there is none, which the body will tell.
fn owner() -> Option<pg_sys::Oid> {
    let table = signal_table();
    // SAFETY: a look-up in the system cache; the row is read before it is released.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::RELOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, table.into());
        if tuple.is_null() {
            return None;
        }
        let row: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        let owner = (*row).relowner;
        pg_sys::ReleaseSysCache(tuple);
        Some(owner)
    }
}
