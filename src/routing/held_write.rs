//! Writes that a split holds back: they wait for its cutover, and check again.

use crate::guc;
use crate::routing::RoutingError;
use crate::server::retry::Backoff;
use crate::server::{sql, wait};
use std::time::{Duration, Instant};

/// The pauses between two checks.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(10));

/// How long a write has waited.
pub struct HeldWrite {
    deadline: Instant,
    pause: Backoff,
}

impl HeldWrite {
    pub fn new() -> HeldWrite {
        HeldWrite { deadline: Instant::now() + guc::route_wait_timeout(), pause: PAUSE }
    }

    /// Waits before the next check. It is an error if waiting cannot help. `key` is what is held back.
    pub fn wait(&mut self, key: &str, keyspace: &str, version: i64) -> Result<(), RoutingError> {
        if sql::keeps_its_snapshot() {
            return Err(RoutingError::Serialization(key.to_owned()));
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (key, keyspace) = (key.to_owned(), keyspace.to_owned());
            return Err(RoutingError::BetweenShards { key, keyspace, version });
        }
        wait::sleep(self.pause.pause().min(left).max(Duration::from_millis(1)));
        self.pause.failed();
        Ok(())
    }
}
