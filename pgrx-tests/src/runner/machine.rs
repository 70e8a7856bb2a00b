//! Measures whether the processors are busy.

use std::fs;
use std::time::{Duration, Instant};

/// The time that it takes to tell idle processors from a pause.
const SPAN: Duration = Duration::from_millis(300);

/// The ticks of all processors since the machine started, and the idle ones among them.
#[derive(Clone, Copy)]
pub struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    /// On a system without `/proc/stat` nothing is known, and the processors count as busy.
    pub fn now() -> Processors {
        Processors::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(text: &str) -> Processors {
        let line = text.lines().next().unwrap_or_default();
        // The columns are user, nice, system, idle, iowait, irq, softirq and steal. Guests are included in
        // the first two.
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Processors { idle, all: ticks.iter().sum() }
    }

    /// Returns the fraction of the time since then that the processors have been idle.
    pub fn idle_since(self) -> f64 {
        self.idle_until(Processors::now())
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn idle_until(self, now: Processors) -> f64 {
        match now.all.saturating_sub(self.all) {
            0 => 0.0,
            all => now.idle.saturating_sub(self.idle) as f64 / all as f64,
        }
    }
}

/// The load of the processors over the last moments.
pub struct Load {
    since: Instant,
    then: Processors,
}

impl Load {
    pub fn begin() -> Load {
        Load { since: Instant::now(), then: Processors::now() }
    }

    /// Whether they were less busy than this, for long enough.
    pub fn is_below(&mut self, busy: f64) -> bool {
        if self.since.elapsed() < SPAN {
            return false;
        }
        let idle = self.then.idle_since();
        *self = Load::begin();
        1.0 - idle < busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_a_share() {
        let before = Processors::of("cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 1 1 1");
        let after = Processors::of("cpu  150 0 70 820 60 0 0 0 9 9\n");
        assert!((before.idle_until(after) - 0.3).abs() < 1e-9);
        assert!(before.idle_until(before) == 0.0);
        assert!(Processors::of("").all == 0);
    }
}
