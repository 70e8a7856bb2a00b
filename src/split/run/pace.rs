//! How long a worker pauses between two steps, and how often it renews its lease.

use crate::agent::error::Result;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::lease;
use crate::guc;
use crate::server::wait;
use crate::split::copy::outcome::StepOutcome;
use crate::split::engine::sessions::EngineSessions;
use std::time::{Duration, Instant};

/// Returns how long a copy pauses after a step, in any phase.
pub(super) fn pause_of_copy(outcome: &StepOutcome, worked: Duration) -> Duration {
    // Without writes, no client is disturbed.
    let share = if outcome.changes > 0 { guc::copy_share() } else { 1.0 };
    let by_rate = rest_by_rate(outcome.bytes as i64, worked);
    by_rate.max(worked.mul_f64((1.0 - share) / share))
}

/// Returns the pause after which this many bytes may have been read.
pub(super) fn rest_by_rate(bytes: i64, worked: Duration) -> Duration {
    let rest = guc::max_copy_rate().map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(bytes as f64 / rate as f64).saturating_sub(worked)
    });
    if rest > Duration::ZERO {
        wait::report("the rate limit shardmaster.max_copy_rate");
    }
    rest
}

/// Whether to renew the lease: well before it ends, so that a slow step does not let it expire.
pub(super) fn is_lease_due(renewed: Option<Instant>) -> bool {
    let lease = Duration::from_secs(u64::try_from(guc::capture_lease_seconds()).unwrap_or(1));
    renewed.is_none_or(|renewed| renewed.elapsed() > lease / 8)
}

pub(super) fn renew_lease(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    renewed: &mut Option<Instant>,
) -> Result<()> {
    if is_lease_due(*renewed) {
        sessions.control_transaction(tenure, &lease::renew(tenure.plan.id))?;
        *renewed = Some(Instant::now());
    }
    Ok(())
}
