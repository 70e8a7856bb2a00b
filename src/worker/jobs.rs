//! Does long work on the shards, which calls have started. This is a process of its own: a silent shard must not delay
//! splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::derive::JobTurns;
use crate::server::wait;

/// Begins the service. It ends when no job goes on.
pub fn begin() -> ServiceTurns {
    let mut turns = JobTurns::default();
    Box::new(move || {
        let pause = turns.take(splits::catalog_exists)?;
        if pause.as_millis() > 500 {
            wait::report_idle("waiting for a job to be due");
        }
        Some(pause)
    })
}
