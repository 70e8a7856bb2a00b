//! How long something that has failed is not tried again, and attempts until one succeeds.

use crate::server::wait;
use std::time::{Duration, Instant};

/// Pauses that double with each failure, from the first to the longest.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    until: Option<Instant>,
}

/// The default is for a shard that a worker has no other reason to ask.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
    }
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, failures: 0, until: None }
    }

    /// Returns it after a number of failures that the caller has counted.
    pub fn after(self, failures: u32) -> Backoff {
        Backoff { failures, ..self }
    }

    /// Returns how often it has failed since it last succeeded.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the pause after the next failure.
    pub fn pause(&self) -> Duration {
        self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest)
    }

    pub fn failed(&mut self) {
        self.failed_for(self.longest);
    }

    /// Notes a failure after which the pause is at most this long.
    pub fn failed_for(&mut self, longest: Duration) {
        self.until = Some(Instant::now() + self.pause().min(longest));
        self.failures = self.failures.saturating_add(1);
    }

    pub fn succeeded(&mut self) {
        (self.failures, self.until) = (0, None);
    }

    /// Returns what is left of the pause, or None if it is over.
    pub fn left(&self) -> Option<Duration> {
        self.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    pub fn is_due(&self) -> bool {
        self.left().is_none()
    }
}

/// The result of one attempt.
pub enum Attempt<T> {
    Done(T),
    /// What the attempt waits for.
    Waits(String),
}

/// Makes attempts until one succeeds, with pauses in which others get what they wait for, and reports what the last
/// attempt has waited for. Returns that as an error if the next attempt would come after the deadline.
pub fn until<T, E>(
    deadline: Instant,
    mut pauses: Backoff,
    mut attempt: impl FnMut() -> Result<Attempt<T>, E>,
) -> Result<Result<T, String>, E> {
    let _status = wait::status_scope();
    loop {
        let reason = match attempt()? {
            Attempt::Done(value) => return Ok(Ok(value)),
            Attempt::Waits(reason) => reason,
        };
        let pause = pauses.pause();
        if Instant::now() + pause > deadline {
            return Ok(Err(reason));
        }
        wait::report(&reason);
        wait::sleep(pause);
        pauses.failed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        assert!(backoff.is_due());
        let pauses = [1, 2, 4, 5, 5].map(|seconds| {
            let pause = backoff.pause();
            backoff.failed();
            (pause, Duration::from_secs(seconds))
        });
        assert!(pauses.iter().all(|(pause, wanted)| pause == wanted), "{pauses:?}");
        assert!(!backoff.is_due() && backoff.failures() == 5);
        assert!(backoff.left().is_some_and(|left| left > Duration::from_secs(4)));
        backoff.succeeded();
        assert!(backoff.is_due() && backoff.pause() == Duration::from_secs(1));
        assert_eq!(
            Backoff::new(Duration::from_secs(1), Duration::MAX).after(u32::MAX).pause(),
            Duration::from_secs(65536)
        );
    }

    #[test]
    fn one_failure_may_allow_a_shorter_pause() {
        let mut backoff = Backoff::new(Duration::from_secs(8), Duration::from_secs(30));
        backoff.failed_for(Duration::from_secs(2));
        assert!(backoff.left().is_some_and(|left| left <= Duration::from_secs(2)));
    }
}
