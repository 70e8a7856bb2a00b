//! The results of all tests, for people and for the next run.

use super::child::Outcome;
use std::fmt::{self, Display};
use std::time::Duration;

/// The number of slowest tests that are shown.
const SLOWEST: usize = 10;

pub struct Results {
    pub outcomes: Vec<Outcome>,
    /// The fraction of the time in which the processors were idle.
    pub idle: f64,
    pub took: Duration,
}

/// Prints one line, and the test's own output without the lines of its test program.
impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, took, used) =
            (if self.is_ok { "ok" } else { "FAILED" }, self.took.as_secs_f64(), self.used.as_secs_f64());
        writeln!(f, "test {} ... {word} ({took:.1} s, {used:.1} s of a processor)", self.name)?;
        let is_frame = |line: &&str| {
            line.is_empty()
                || line.starts_with("running ")
                || line.starts_with("test result: ")
                || line.ends_with(" ... ok")
        };
        self.output.lines().filter(|line| !is_frame(line)).try_for_each(|line| writeln!(f, "    {line}"))
    }
}

impl Results {
    pub fn failed(&self) -> Vec<&Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.is_ok).collect()
    }
}

/// The last line has the format of a test program's own summary.
impl Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slowest: Vec<_> = self.outcomes.iter().collect();
        slowest.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
        let used: Duration = self.outcomes.iter().map(|outcome| outcome.used).sum();
        f.write_str("\nthe slowest, in seconds, and of these what a processor worked for them:\n")?;
        for outcome in slowest.iter().take(SLOWEST) {
            let (took, used) = (outcome.took.as_secs_f64(), outcome.used.as_secs_f64());
            writeln!(f, "{took:8.1} {used:7.1}  {}", outcome.name)?;
        }
        let (took, used, idle) = (self.took.as_secs_f64(), used.as_secs_f64(), 100.0 * self.idle);
        writeln!(
            f,
            "{took:.0} s for all; {used:.0} s of a processor; processors were idle for {idle:.0} % of the time\n"
        )?;
        let failed = self.failed();
        failed.iter().try_for_each(|outcome| writeln!(f, "failed: {}", outcome.name))?;
        let word = if failed.is_empty() { "ok" } else { "FAILED" };
        let passed = self.outcomes.len() - failed.len();
        writeln!(f, "test result: {word}. {passed} passed; {} failed; 0 ignored", failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, is_ok: bool, seconds: u64) -> Outcome {
        let output = "\nrunning 1 test\ntest a ... ok\nwhat it says\n\ntest result: ok. 1 passed\n".into();
        let took = Duration::from_secs(seconds);
        Outcome { name: name.into(), is_ok, took, used: took / 2, output }
    }

    #[test]
    fn a_run_ends_with_its_sum_and_the_slowest() {
        let outcomes = (0..12).map(|n| outcome(&format!("t{n}"), n != 3, n)).collect();
        let text = Results { outcomes, idle: 0.25, took: Duration::from_secs(40) }.to_string();
        assert!(
            text.contains("\n    11.0     5.5  t11\n") && text.contains("  t2\n") && !text.contains("  t1\n"),
            "{text}"
        );
        assert!(
            text.contains("40 s for all; 33 s of a processor; processors were idle for 25 % of the time"),
            "{text}"
        );
        assert!(
            text.ends_with("failed: t3\ntest result: FAILED. 11 passed; 1 failed; 0 ignored\n"),
            "{text}"
        );
    }

    #[test]
    fn a_test_is_a_line_and_what_it_says() {
        let one = outcome("t", true, 4);
        assert_eq!(one.to_string(), "test t ... ok (4.0 s, 2.0 s of a processor)\n    what it says\n");
    }
}
