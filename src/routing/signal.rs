//! Tables that are not read: their invalidation tells all sessions what to forget.

use pgrx::pg_sys;
use std::ffi::CStr;

/// Returns the oid of such a table, or an invalid oid if there is none.
pub fn table(name: &CStr) -> pg_sys::Oid {
    // SAFETY: this reads the system cache with NUL-terminated names.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"shardmaster".as_ptr(), true);
        if schema == pg_sys::Oid::INVALID {
            return pg_sys::Oid::INVALID;
        }
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    }
}
