//! The agent's objects beside a trigger's function: in its schema, with its owner.

use super::event::raise;
use crate::server::functions;
use pgrx::prelude::*;
use std::ffi::{CStr, CString};

/// The hint of errors about a trigger that lacks something.
pub const HINT: &str = "The split notices it and copies again once its triggers are complete. Otherwise roll it back and start it again, or drop the triggers whose names begin with 00_shardmaster.";

/// The schema of a trigger's function, and what is beside it.
pub struct Agent {
    schema: pg_sys::Oid,
    owner: pg_sys::Oid,
    name: String,
    pub split: i64,
    ordinal: i64,
}

impl Agent {
    /// # Safety
    /// The function is being called.
    pub unsafe fn of(function: pg_sys::Oid) -> Agent {
        // SAFETY: these are look-ups in the system cache.
        unsafe {
            let name = pg_sys::get_func_name(function);
            let name = if name.is_null() { "" } else { CStr::from_ptr(name).to_str().unwrap_or_default() };
            let numbers = name.strip_prefix("capture_").and_then(|numbers| numbers.split_once('_'));
            let numbers = numbers.and_then(|(split, ordinal)| split.parse().ok().zip(ordinal.parse().ok()));
            let Some((split, ordinal)) = numbers else {
                raise(format!("function \"{name}\" does not have the name of a split's function"), HINT);
            };
            let (schema, owner) = (pg_sys::get_func_namespace(function), owner(function));
            Agent { schema, owner, name: name.to_owned(), split, ordinal }
        }
    }

    /// Returns the oid of a relation beside the function, with the same owner; it is invalid if there is none.
    pub fn relation(&self, name: &str) -> pg_sys::Oid {
        let Ok(name) = CString::new(name) else { return pg_sys::Oid::INVALID };
        // SAFETY: these are look-ups in the system cache; the row is read before it is released.
        unsafe {
            let relation = pg_sys::get_relname_relid(name.as_ptr(), self.schema);
            let cache = pg_sys::SysCacheIdentifier::RELOID as i32;
            let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(relation));
            if tuple.is_null() {
                return pg_sys::Oid::INVALID;
            }
            let is_own =
                (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>()).relowner == self.owner;
            pg_sys::ReleaseSysCache(tuple);
            if is_own { relation } else { pg_sys::Oid::INVALID }
        }
    }

    pub fn queue(&self) -> String {
        format!("queue_{}_{}", self.split, self.ordinal)
    }

    /// Returns the function beside it whose name has this ending.
    ///
    /// # Safety
    /// A transaction is open.
    pub unsafe fn function(&self, ending: &str) -> pg_sys::Oid {
        let name = format!("{}{ending}", self.name);
        let mut found = pg_sys::Oid::INVALID;
        // SAFETY: the caller keeps the promise above; each row of the catalog is read while it exists.
        unsafe {
            functions::each_named(name.as_bytes(), |tuple, _| {
                let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
                if row.pronamespace == self.schema && row.proowner == self.owner {
                    found = row.oid;
                }
            });
        }
        if found == pg_sys::Oid::INVALID {
            raise(format!("function \"{name}\" of a capture trigger is missing"), HINT);
        }
        found
    }

    /// Returns the types of a function's arguments.
    ///
    /// # Safety
    /// The function exists.
    pub unsafe fn arguments(&self, function: pg_sys::Oid) -> Vec<pg_sys::Oid> {
        let (mut types, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: this is a look-up in the system cache, which creates an array of this length.
        unsafe {
            pg_sys::get_func_signature(function, &mut types, &mut count);
            std::slice::from_raw_parts(types, usize::try_from(count).unwrap_or(0)).to_vec()
        }
    }
}

/// Returns the owner of a function.
///
/// # Safety
/// A transaction is open.
unsafe fn owner(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: this is a look-up in the system cache; the row is read before it is released.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return pg_sys::Oid::INVALID;
        }
        let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>()).proowner;
        pg_sys::ReleaseSysCache(tuple);
        owner
    }
}
