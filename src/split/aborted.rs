//! Cutovers that are aborted: why, and what the operator is told.

use crate::agent::error::SplitError;
use crate::error::{Failure, SqlState};

fn aborted(why: String, hint: &'static str) -> Failure {
    Failure::new(SqlState::parse("55P03"), format!("cutover aborted{why}")).hint(hint)
}

/// Returns why a cutover was aborted: everything is restored and the operator is told.
pub fn because(reason: &str) -> Failure {
    aborted(
        format!(", waiting for {reason}"),
        "It is not tried again automatically. The split goes on following its source. End what it waited for, or raise shardmaster.cutover_timeout. Then call shard_split_cutover again; with attempts => 10 it is tried up to 10 times.",
    )
}

/// Returns the error for a row of another key that has what a changed row needs: waiting longer does not help.
pub fn row_in_the_way(table: &str, shard: &str) -> Failure {
    aborted(
        format!(": a conflicting row is in table {table} on shard \"{shard}\""),
        "The split goes on following its source. Its next step waits for the split that moves that row, or names the row in error_message. Once the row is gone, call shard_split_cutover again.",
    )
}

/// Something that a cutover does not wait for.
pub const COPIES_AGAIN: &str = "the copy, which had to start again";

/// Returns why a worker does not begin a cutover that another one has left, with the last error of that one.
pub fn interrupted(met: Option<String>) -> Failure {
    let met = met.map(|why| format!("; it had met: {why}")).unwrap_or_default();
    aborted(
        format!(": it was interrupted, and requested longer ago than shardmaster.cutover_timeout{met}"),
        "Call shard_split_cutover again. Until then the split goes on following its source.",
    )
}

/// Returns why a cutover is no longer begun.
pub fn window_over() -> Failure {
    aborted(
        ": its window is over".to_owned(),
        "Call shard_split_cutover again with another window. Until then the split goes on following its source.",
    )
}

/// Returns why a cutover that ended with an error is not tried again automatically. Returns None if it is tried again,
/// unless it is overdue: its operator does not expect it hours later, when a connection is back.
pub fn abandoned(error: &SplitError, is_overdue: bool) -> Option<Failure> {
    match error {
        SplitError::Aborted(failure)
        | SplitError::Failed(failure)
        | SplitError::Reshaped(failure)
        | SplitError::NotInstalled(failure) => Some(failure.clone()),
        SplitError::Remote(error) if error.is_transient() => Some(because(&error.to_string())),
        SplitError::Remote(error) => Some(error.clone().into()),
        SplitError::Retry(_) | SplitError::Injected(_) if is_overdue => Some(because(&error.to_string())),
        SplitError::Retry(_)
        | SplitError::Injected(_)
        | SplitError::Superseded
        | SplitError::Behind { .. } => None,
    }
}

pub fn deadline_passed(error: SplitError) -> SplitError {
    match error {
        SplitError::Remote(error) if error.is_lock_timeout() => {
            SplitError::Aborted(because(&format!("a lock on the moving tables ({error})")))
        }
        SplitError::Retry(reason) => SplitError::Aborted(because(&reason)),
        other => other,
    }
}
