//! Values of this server as shards read them.

use crate::remote::quote::{ident, literal};
use crate::server::{settings, sql};
use pgrx::pg_sys;
use std::ffi::CStr;

/// Times are written in a form that every `DateStyle` reads alike.
const FOR_SHARDS: [(&CStr, &CStr); 2] = [(c"datestyle", c"ISO, YMD"), (c"intervalstyle", c"postgres")];

/// Returns a value's text, in UTF-8.
///
/// # Safety
/// A transaction is open, and the value is of that type.
pub unsafe fn of_value(value: pg_sys::Datum, kind: pg_sys::Oid) -> String {
    settings::with(&FOR_SHARDS, || {
        // SAFETY: the caller keeps the promise above; texts end with NUL.
        unsafe {
            let (mut output, mut is_varlena) = (pg_sys::Oid::INVALID, false);
            pg_sys::getTypeOutputInfo(kind, &mut output, &mut is_varlena);
            let text = pg_sys::OidOutputFunctionCall(output, value);
            let length = i32::try_from(CStr::from_ptr(text).to_bytes().len()).unwrap_or(i32::MAX);
            let text = pg_sys::pg_server_to_any(text, length, pg_sys::pg_enc::PG_UTF8 as i32);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    })
}

/// Returns a literal of the type.
pub fn literal_of(text: Option<&str>, kind: pg_sys::Oid) -> String {
    format!("{}::{}", text.map_or_else(|| "NULL".to_owned(), literal), name_of(kind))
}

/// Returns the name of a built-in type, qualified so that no search_path affects it.
fn name_of(kind: pg_sys::Oid) -> String {
    let names = sql::read_one(
        "SELECT typname::pg_catalog.text FROM pg_catalog.pg_type WHERE oid OPERATOR(pg_catalog.=) $1",
        &[kind.into()],
        |row| row.value::<String>(1),
    );
    format!("pg_catalog.{}", ident(&names.unwrap_or_default()))
}
