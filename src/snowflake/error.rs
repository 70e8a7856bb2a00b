//! The reasons why no identifier can be made.

use crate::error::{Failure, SqlState, invalid};

pub fn not_preloaded() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "identifiers need shared memory, which shardmaster does not have")
        .hint("Add shardmaster to shared_preload_libraries and restart the server.")
}

pub fn no_machine() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "no machine id is set").hint(
        "Set shardmaster.machine_id to a different number from 0 to 1023 on each server, and restart it.",
    )
}

pub fn invalid_epoch(text: &str) -> Failure {
    invalid("shardmaster.snowflake_epoch", format!("\"{text}\" is not a date"))
        .hint("Write it as 2024-01-01. It means 00:00 UTC.")
}

pub fn other_epoch(was: u64, is: u64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("identifiers were made with the epoch {was}, not {is}")).hint(
        "Restore the old value of shardmaster.snowflake_epoch. With another epoch identifiers would repeat.",
    )
}

pub fn before_epoch() -> Failure {
    wrong_clock("the clock is before the epoch of identifiers")
}

pub fn clock_set_back(milliseconds: u64) -> Failure {
    wrong_clock(format!("the clock is {milliseconds} ms behind the last identifier"))
}

fn wrong_clock(message: impl Into<String>) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Correct the server's clock, or wait until it has caught up.")
}

pub fn used_up() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "the identifiers of this epoch are used up")
        .hint("Use another machine id with a later epoch.")
}

pub fn file(what: &str, path: &str, error: &str) -> Failure {
    Failure::new(SqlState::parse("58030"), format!("could not {what} file \"{path}\": {error}"))
        .hint("The file prevents identifiers from repeating. Check the data directory.")
}
