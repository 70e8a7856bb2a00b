//! Where the server keeps its files.

use pgrx::pg_sys;
use std::ffi::CStr;
use std::path::PathBuf;

/// Without links on the way.
pub fn path() -> Option<PathBuf> {
    // SAFETY: set once when the server starts, NUL-terminated.
    let text = unsafe { pg_sys::DataDir.as_ref().map(|text| CStr::from_ptr(text)) }?;
    PathBuf::from(text.to_str().ok()?).canonicalize().ok()
}
