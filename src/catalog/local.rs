//! This database and this extension, as the server knows them.

use crate::server::sql;
use crate::server::txn::in_one;

/// The owner of the extension: the mover's role on this very database.
pub fn owner() -> String {
    in_transaction(
        "SELECT r.rolname::text FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner
          WHERE e.extname = 'shardmaster'",
    )
}

/// Whether whoever has called a function of this library is a superuser, though it runs with
/// its owner's rights.
pub fn caller_is_superuser() -> bool {
    // SAFETY: called in a transaction; the outer user is always set.
    unsafe { pgrx::pg_sys::superuser_arg(pgrx::pg_sys::GetOuterUserId()) }
}

/// The role that has called a function of this library.
pub fn caller() -> String {
    // SAFETY: called in a transaction; the outer user is always set, and exists or is an error.
    // The name is palloc'd and NUL-terminated.
    unsafe {
        let name = pgrx::pg_sys::GetUserNameFromId(pgrx::pg_sys::GetOuterUserId(), false);
        std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// Whether this database has a schema of this name.
pub fn has_schema(schema: &str) -> bool {
    let query = "SELECT true FROM pg_catalog.pg_namespace WHERE nspname = $1";
    sql::read_one(query, &[schema.into()], |_| ()).is_some()
}

/// Whether whoever has called a function of this library owns a schema of this database.
pub fn caller_owns(schema: &str) -> bool {
    // SAFETY: called in a transaction; the outer user is always set.
    let caller = unsafe { pgrx::pg_sys::GetOuterUserId() };
    sql::read_one(
        "SELECT true FROM pg_catalog.pg_namespace
          WHERE nspname = $1 AND pg_catalog.pg_has_role($2, nspowner, 'USAGE')",
        &[schema.into(), caller.into()],
        |_| (),
    )
    .is_some()
}

/// Read in the caller's transaction, or in one of its own when there is none.
fn in_transaction(query: &str) -> String {
    in_one(|| sql::read_one(query, &[], |row| row.value::<String>(1)).unwrap_or_default())
}
