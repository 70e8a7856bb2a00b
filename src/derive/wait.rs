//! Waits for the end of a job.

use super::error;
use crate::catalog::job::{self, JobState};
use crate::error::{Failure, SqlState};
use crate::server::{sql, wait};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(20);

/// Waits until a job is done. It is an error if it fails, or if somebody pauses it.
pub fn until_done(id: i64, deadline: Instant) -> Result<(), Failure> {
    if job::is_own(id) {
        return Err(error::not_committed(id));
    }
    loop {
        let found = job::read_state(id).ok_or_else(|| error::no_such_job(id))?;
        match found.state {
            JobState::Done => return Ok(()),
            JobState::Failed => return Err(found.failure.unwrap_or_else(|| error::no_such_job(id))),
            JobState::Paused => return Err(error::is_paused(id)),
            JobState::Running => {}
        }
        if Instant::now() >= deadline {
            return Err(error::not_in_time(id, &found.place));
        }
        if sql::keeps_its_snapshot() {
            return Err(Failure::new(
                SqlState::SERIALIZATION_FAILURE,
                "a transaction above READ COMMITTED cannot see the progress of a job",
            )
            .hint("Wait in a transaction of isolation level READ COMMITTED."));
        }
        wait::sleep(PAUSE);
    }
}
