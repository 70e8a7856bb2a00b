//! The options of a foreign table: which table of which keyspace it is, and how long each shard is waited for.

use super::error;
use crate::error::Failure;
use pgrx::datum::Interval;
use pgrx::prelude::*;
use pgrx::{PgList, direct_function_call, pg_sys};
use std::ffi::CStr;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Options {
    pub keyspace: String,
    /// The name in the form of the catalog of tables.
    pub table: String,
    /// The total time for which each shard is waited for.
    pub timeout: Duration,
}

impl Options {
    /// # Safety
    /// A transaction is open, and the number is that of a foreign table.
    pub unsafe fn of(table: pg_sys::Oid) -> Result<Options, Failure> {
        // SAFETY: the caller keeps the promise above; this is a list of options in the form of the catalog.
        let list = unsafe {
            let foreign = pg_sys::GetForeignTable(table);
            PgList::<pg_sys::DefElem>::from_pg((*foreign).options)
        };
        let mut given = Vec::new();
        for option in list.iter_ptr() {
            // SAFETY: the list is that of the table above; both are texts that end with NUL.
            let (name, value) =
                unsafe { (CStr::from_ptr((*option).defname), CStr::from_ptr(pg_sys::defGetString(option))) };
            given.push((name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        }
        Options::parse(given)
    }

    /// Parses the options of one foreign table, which needs all of them but the timeout, and accepts no others.
    pub fn parse(given: Vec<(String, String)>) -> Result<Options, Failure> {
        let (mut keyspace, mut table, mut timeout) = (None, None, TIMEOUT);
        for (name, value) in given {
            match name.as_str() {
                "keyspace" => keyspace = Some(value),
                "table_name" => table = Some(value),
                "timeout" => timeout = longest(&value)?,
                _ => return Err(error::unknown_option(&name)),
            }
        }
        Ok(Options {
            keyspace: keyspace.ok_or_else(|| error::missing_option("keyspace"))?,
            table: table.ok_or_else(|| error::missing_option("table_name"))?,
            timeout,
        })
    }
}

/// Parses the text of an interval; the server raises an error if it is none.
fn longest(text: &str) -> Result<Duration, Failure> {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: interval's input function takes a C string, a type and its modifier.
    let read = unsafe {
        direct_function_call::<Interval>(
            pg_sys::interval_in,
            &[
                Some(pg_sys::Datum::from(text.as_ptr())),
                pg_sys::INTERVALOID.into_datum(),
                (-1i32).into_datum(),
            ],
        )
    };
    let micros =
        read.and_then(|interval| u64::try_from(interval.as_micros()).ok()).filter(|micros| *micros > 0);
    micros.map(Duration::from_micros).ok_or_else(error::invalid_timeout)
}
