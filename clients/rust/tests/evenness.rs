//! Identifiers spread evenly over shards by their hash, and not by what they are.
#![allow(clippy::unwrap_used)]

use shardmaster_client::shard_for;
use shardmaster_client::snowflake::{Clock, DEFAULT_EPOCH, Generator};
use std::cell::Cell;
use std::num::NonZeroU32;

/// Some identifiers in the same millisecond, some milliseconds with none.
struct Bursts(Cell<u64>, Cell<u64>);

impl Clock for Bursts {
    fn now(&self) -> u64 {
        // A linear congruential generator: the same for every run.
        let state = self.1.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.1.set(state);
        self.0.set(self.0.get() + [0, 0, 0, 1, 1, 2, 5, 40][(state >> 61) as usize]);
        self.0.get()
    }
}

fn ids() -> Vec<i64> {
    let machines = [0, 1, 5, 77, 512, 1023];
    let per_machine = 1_000_000_usize.div_ceil(machines.len());
    let of = |machine: u16| {
        let clock = Bursts(Cell::new(DEFAULT_EPOCH + 1_000), Cell::new(machine.into()));
        let generator = Generator::with_clock(machine, DEFAULT_EPOCH, clock).unwrap();
        (0..per_machine).map(move |_| generator.generate().unwrap())
    };
    machines.into_iter().flat_map(of).collect()
}

/// Pearson's statistic against equal shares.
fn chi_square(shards: u32, of: impl Iterator<Item = u32>) -> f64 {
    let mut counts = vec![0_f64; shards as usize];
    of.for_each(|shard| counts[shard as usize] += 1.0);
    let expected = counts.iter().sum::<f64>() / f64::from(shards);
    counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
}

#[test]
fn a_million_identifiers() {
    let ids = ids();
    assert!(ids.len() >= 1_000_000);
    // Quantiles of 0.999 for one degree of freedom less than shards.
    for (shards, limit) in [(2, 10.83), (7, 22.46), (10, 27.88), (16, 37.70), (64, 103.44)] {
        let count = NonZeroU32::new(shards).unwrap();
        let hashed = chi_square(shards, ids.iter().map(|id| shard_for(*id, count)));
        assert!(hashed < limit, "{shards} shards: {hashed}");
    }
    for (shards, limit) in [(2, 10.83), (16, 37.70), (64, 103.44)] {
        let plain = chi_square(shards, ids.iter().map(|id| (id % i64::from(shards)) as u32));
        assert!(plain > 100.0 * limit, "{shards} shards: {plain}");
    }
}
