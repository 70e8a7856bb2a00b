//! How long a process that ended too early is left alone before it is started again.

use std::time::{Duration, Instant};

/// A process that lived this long is not ending for the same reason again and again.
const STABLE: Duration = Duration::from_secs(60);
/// The first time may be chance, or an operator.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// 0.1 s, 1 s, 2 s, 4 s, .. 30 s between starts.
#[derive(Default)]
pub struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// The process has ended after it lived this long.
    pub fn ended(&mut self, lived: Duration) {
        if lived >= STABLE {
            self.failures = 0;
        }
        let pause = match self.failures {
            0 => FIRST,
            again => Duration::from_secs(1 << (again - 1).min(5)).min(LONGEST),
        };
        self.failures += 1;
        self.until = Some(Instant::now() + pause);
    }

    /// What is left of the pause.
    pub fn left(&self) -> Option<Duration> {
        self.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
