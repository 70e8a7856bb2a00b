//! Writes that a split holds back: they wait for its cutover, and check again.

use crate::error::Failure;
use crate::guc;
use crate::routing::error;
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
    pub fn wait(&mut self, key: &str, keyspace: &str, version: i64) -> Result<(), Failure> {
        if sql::keeps_its_snapshot() {
            return Err(error::end_of_move_unseen(key));
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(error::between_shards(keyspace, version, key));
        }
        wait::sleep(self.pause.pause().min(left).max(Duration::from_millis(1)));
        self.pause.failed();
        Ok(())
    }
}
