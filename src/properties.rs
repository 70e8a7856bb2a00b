//! Properties of pure functions, tried with many values: a value that fails is made as small as possible before it is
//! shown. Each run tries the same values; SHARDMASTER_SEED tries others.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};

const CASES: u32 = 2_000;
const SEED: u64 = 1;

fn seed() -> u64 {
    std::env::var("SHARDMASTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED)
}

/// Panics with the smallest value found for which the test fails.
pub fn hold<S: Strategy>(values: S, test: impl Fn(S::Value) -> TestCaseResult) {
    let seed = seed();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    if let Err(failed) = runner.run(&values, test) {
        panic!("seed {seed}: {failed}");
    }
}
