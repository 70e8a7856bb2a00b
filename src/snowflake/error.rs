//! The reasons why no identifier can be made.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SnowflakeError {
    #[error("identifiers need shared memory, which shardmaster does not have")]
    NotPreloaded,
    #[error("no machine id is set")]
    NoMachine,
    #[error("invalid value for \"shardmaster.snowflake_epoch\": \"{0}\" is not a date")]
    InvalidEpoch(String),
    #[error("identifiers were made with the epoch {was}, not {is}")]
    OtherEpoch { was: u64, is: u64 },
    #[error("the clock is before the epoch of identifiers")]
    BeforeEpoch,
    #[error("the clock is {0} ms behind the last identifier")]
    ClockSetBack(u64),
    #[error("the identifiers of this epoch are used up")]
    UsedUp,
    #[error("could not {what} file \"{path}\": {error}")]
    File { what: &'static str, path: String, error: String },
}

impl From<SnowflakeError> for Failure {
    fn from(error: SnowflakeError) -> Failure {
        use SnowflakeError as E;
        let (state, hint) = match &error {
            E::NotPreloaded => (
                SqlState::NOT_IN_STATE,
                "Add shardmaster to shared_preload_libraries and restart the server.",
            ),
            E::NoMachine => (
                SqlState::NOT_IN_STATE,
                "Set shardmaster.machine_id to a different number from 0 to 1023 on each server, and restart it.",
            ),
            E::InvalidEpoch(_) => (SqlState::INVALID_VALUE, "Write it as 2024-01-01. It means 00:00 UTC."),
            E::OtherEpoch { .. } => (
                SqlState::NOT_IN_STATE,
                "Restore the old value of shardmaster.snowflake_epoch. With another epoch identifiers would repeat.",
            ),
            E::BeforeEpoch | E::ClockSetBack(_) => {
                (SqlState::NOT_IN_STATE, "Correct the server's clock, or wait until it has caught up.")
            }
            E::UsedUp => (SqlState::NOT_IN_STATE, "Use another machine id with a later epoch."),
            E::File { .. } => (
                SqlState::parse("58030"),
                "The file prevents identifiers from repeating. Check the data directory.",
            ),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
