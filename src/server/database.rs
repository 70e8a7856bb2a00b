//! The database that this process is connected to.

use super::txn::in_one;
use pgrx::pg_sys;
use std::ffi::CStr;

pub fn id() -> pg_sys::Oid {
    // SAFETY: this is a plain variable, set when this process connected to its database.
    unsafe { pg_sys::MyDatabaseId }
}

/// Reads the name in the caller's transaction, or in one of its own if there is none.
pub fn name() -> String {
    in_one(read)
}

fn read() -> String {
    // SAFETY: this runs in a transaction; it returns NULL or a NUL-terminated palloc'd name.
    unsafe {
        let name = pg_sys::get_database_name(id());
        if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}

/// Returns an advisory lock of this database that no SQL function takes: its space is not one of theirs.
pub fn advisory_lock(space: u16, id: u64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: self::id().to_u32(),
        locktag_field2: (id >> 32) as u32,
        locktag_field3: id as u32,
        locktag_field4: space,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}
