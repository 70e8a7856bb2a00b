//! Acting as the owner of the catalog, for functions for which SECURITY DEFINER and SET clauses would cost more than
//! their usual work.

use super::signal::{self, ROUTES};
use crate::server::settings;
use pgrx::prelude::*;

/// Settings that a query of the catalog needs: names are not resolved in any schema of the caller, and a plan that was
/// made while the tables were tiny must not stay.
const SETTINGS: [(&std::ffi::CStr, &std::ffi::CStr); 2] =
    [(c"search_path", c"pg_catalog, pg_temp"), (c"enable_seqscan", c"off")];

/// Disables JIT: with disabled scans the estimated costs are so high that the server would compile each plan, which
/// takes half a second. It is not among the settings: another one there would cost each route a tenth.
struct Uncompiled(bool);

impl Uncompiled {
    fn begin() -> Uncompiled {
        // SAFETY: this is the server's own variable, in its only thread; `drop` restores it, also after an error.
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

/// Runs the body like a SECURITY DEFINER function with SET clauses. An error aborts the (sub)transaction, which
/// restores role and settings.
pub fn as_owner<R>(body: impl FnOnce() -> R) -> R {
    let Some(owner) = owner() else { return body() };
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: this runs in a transaction; what is set here is restored below, or by an abort.
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

/// Returns the role that owns the catalog. Returns None if there is none, which the body will report.
fn owner() -> Option<pg_sys::Oid> {
    let table = signal::table(&ROUTES);
    // SAFETY: this reads the system cache; the row is read before it is released.
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
