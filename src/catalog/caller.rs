//! The caller of a function that does more for some roles than for others.
//!
//! Such a function is SECURITY INVOKER. At its call the current user is the role that EXECUTE was checked for; inside
//! a SECURITY DEFINER function only the session's role could be read. The session's role is another one where code of
//! a role runs in a session of somebody else: in SECURITY DEFINER functions, and in functions of indexes during a
//! superuser's REINDEX or an autovacuum.

use super::local;
use crate::server::{settings, sql};
use pgrx::pg_sys;
use std::ffi::CStr;

/// Only `as_owner` makes one, before it changes the role.
pub struct Caller(pg_sys::Oid);

impl Caller {
    /// Runs the body with the rights of the extension's owner, as a SECURITY DEFINER function with a fixed search_path
    /// does. Names in the body are not resolved in the caller's search path or among the caller's temporary objects.
    pub fn as_owner<R>(body: impl FnOnce(&Caller) -> R) -> R {
        settings::with(&[(c"search_path", c"pg_catalog, pg_temp")], || Self::change_role(body))
    }

    fn change_role<R>(body: impl FnOnce(&Caller) -> R) -> R {
        let owner = local::owner_id();
        let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
        // SAFETY: this runs in a transaction. The guard restores what is set here, on errors too.
        let _back = unsafe {
            pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
            let back = PutBack { user, context };
            let local = pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
            pg_sys::SetUserIdAndSecContext(owner, context | local);
            back
        };
        body(&Caller(user))
    }

    pub fn id(&self) -> pg_sys::Oid {
        self.0
    }

    pub fn is_superuser(&self) -> bool {
        // SAFETY: this reads the catalog, in a transaction.
        unsafe { pg_sys::superuser_arg(self.0) }
    }

    pub fn name(&self) -> String {
        // SAFETY: the current user exists; otherwise this is an error. The name is palloc'd and NUL-terminated.
        unsafe {
            let name = pg_sys::GetUserNameFromId(self.0, false);
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }

    /// Whether the caller owns a schema of this database.
    pub fn owns(&self, schema: &str) -> bool {
        sql::exists(
            "SELECT true FROM pg_catalog.pg_namespace
              WHERE nspname = $1 AND pg_catalog.pg_has_role($2, nspowner, 'USAGE')",
            &[schema.into(), self.0.into()],
        )
    }
}

/// The role that was the current one before `as_owner` changed it.
struct PutBack {
    user: pg_sys::Oid,
    context: i32,
}

impl Drop for PutBack {
    fn drop(&mut self) {
        // SAFETY: this sets two variables of the process to their earlier values.
        unsafe { pg_sys::SetUserIdAndSecContext(self.user, self.context) };
    }
}
