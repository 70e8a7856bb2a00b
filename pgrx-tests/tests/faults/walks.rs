//! Random walks over an operator's calls, with clients that write at the same time.

use shardmaster_tests::env::{at_most, is_long_run};
use shardmaster_tests::random::seed;
use shardmaster_tests::walks::walk::Walk;
use std::time::{Duration, Instant};

/// The number of steps of a walk.
const STEPS: usize = 80;

/// Returns how long each test starts new walks.
fn time() -> Duration {
    let given = std::env::var("SHARDMASTER_WALK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(if is_long_run() { 15 } else { 1 }))
}

fn walks(seed: u64, has_faults: bool) {
    let began = Instant::now();
    let mut number = 0;
    while number == 0 || began.elapsed() < time() {
        // The first walk has the given seed.
        let seed = seed.wrapping_add(number);
        let mut walk = Walk::new(seed, has_faults).unwrap();
        let outcome = (0..at_most(36).min(STEPS)).try_for_each(|_| walk.step()).and_then(|()| walk.end());
        if let Err(error) = outcome {
            panic!("SHARDMASTER_SEED={seed}: {error}\n{}", walk.describe());
        }
        walk.keep();
        println!("walk {number}, seed {seed}: {}", walk.summary());
        number += 1;
    }
}

#[test]
#[ignore = "make test-all: walks without faults; make test has calls_in_any_order_with_faults"]
fn calls_in_any_order() {
    walks(seed(), false);
}

#[test]
fn calls_in_any_order_with_faults() {
    walks(seed(), true);
}
