//! The high-water mark on disk: the millisecond up to which identifiers may have been used. It is a file in the data
//! directory, because identifiers belong to the server, not to a database, and are not undone with a transaction.

use super::error;
use crate::error::Failure;
use pgrx::pg_sys;
use std::ffi::CStr;
use std::fs::{File, rename};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

const NAME: &str = "shardmaster.snowflake";

fn directory() -> PathBuf {
    // SAFETY: this is a NUL-terminated path, set at the server's start.
    let path = unsafe { CStr::from_ptr(pg_sys::DataDir) };
    PathBuf::from(path.to_string_lossy().into_owned())
}

fn failed(what: &str, error: &impl ToString) -> Failure {
    let path = directory().join(NAME).display().to_string();
    error::file(what, &path, &error.to_string())
}

/// Returns 0 if no identifier was ever made. A file that cannot be read is an error: otherwise, identifiers could be
/// made twice.
pub fn read(epoch: u64) -> Result<u64, Failure> {
    let text = match std::fs::read_to_string(directory().join(NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed("read", &error)),
    };
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(was)), Some(Ok(mark))) if was == epoch => Ok(mark),
        (Some(Ok(was)), Some(Ok(_))) => Err(error::other_epoch(was, epoch)),
        _ => Err(failed("read", &"its content is not what was written")),
    }
}

/// Returns once the mark would survive a power failure.
pub fn write(epoch: u64, mark: u64) -> Result<(), Failure> {
    let directory = directory();
    let (path, next) = (directory.join(NAME), directory.join(format!("{NAME}.next")));
    let write = || {
        let mut file = File::create(&next)?;
        writeln!(file, "{epoch} {mark}")?;
        file.sync_all()?;
        rename(&next, &path)?;
        File::open(&directory)?.sync_all()
    };
    write().map_err(|error| failed("write", &error))
}
