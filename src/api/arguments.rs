//! Arguments that several functions read in the same way.

use crate::error::{Failure, required};
use pgrx::datum::Interval;
use std::time::Duration;

pub use crate::error::invalid;

/// Returns how long the call waits.
pub fn longest_wait(timeout: Option<Interval>) -> Result<Duration, Failure> {
    let micros = u64::try_from(required(timeout, "timeout")?.as_micros()).unwrap_or(0);
    if micros == 0 {
        return Err(invalid("timeout", "it must be longer than zero, and finite"));
    }
    Ok(Duration::from_micros(micros))
}

/// Returns the elements of a list, none of which may be NULL.
pub fn names_of(list: Vec<Option<String>>, argument: &str) -> Result<Vec<String>, Failure> {
    list.into_iter().map(|name| required(name, argument)).collect()
}
