//! The directory of the server's files.

use pgrx::pg_sys;
use std::ffi::CStr;
use std::path::PathBuf;

/// Returns the path, with links resolved.
pub fn path() -> Option<PathBuf> {
    // SAFETY: this is set once when the server starts, and NUL-terminated.
    let text = unsafe { pg_sys::DataDir.as_ref().map(|text| CStr::from_ptr(text)) }?;
    PathBuf::from(text.to_str().ok()?).canonicalize().ok()
}
