//! Weighted rendezvous hashing: each key has its own order of the shards, in which a shard comes first with a
//! frequency given by its weight. If a shard is added or removed, the first shard changes only for keys whose first
//! shard it is.

use xxhash_rust::xxh64::Xxh64;

/// A shard that may be chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub id: i64,
    pub shard_key: String,
    /// `None` if the shard is unlimited.
    pub capacity: Option<i64>,
    pub free: i64,
    /// The number of changes of free slots that were added up to find it.
    pub entries: i64,
}

/// Sorts the candidates into the order of the key; those with a large weight tend to come first.
pub fn order(key: &str, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    // An unlimited shard weighs as much as the largest one.
    let largest = candidates.iter().filter_map(|c| c.capacity).max().unwrap_or(1).max(1);
    candidates.sort_by_cached_key(|candidate| {
        let weight = candidate.capacity.unwrap_or(largest).max(1) as f64;
        let distance = -unit(key, &candidate.shard_key).ln() / weight;
        // Positive floats sort in the same order as their bits.
        (distance.to_bits(), candidate.shard_key.clone())
    });
    candidates
}

/// Returns a number between 0 and 1, both excluded, which stays the same for a key and a shard for ever.
fn unit(key: &str, shard_key: &str) -> f64 {
    let mut hash = Xxh64::new(0);
    hash.update(key.as_bytes());
    hash.update(&[0]);
    hash.update(shard_key.as_bytes());
    ((hash.digest() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(capacities: &[Option<i64>]) -> Vec<Candidate> {
        let new = |(i, capacity): (usize, &Option<i64>)| Candidate {
            id: i as i64,
            shard_key: format!("shard {i}"),
            capacity: *capacity,
            free: 1,
            entries: 0,
        };
        capacities.iter().enumerate().map(new).collect()
    }

    fn first(key: &str, shards: &[Candidate]) -> String {
        order(key, shards.to_vec())[0].shard_key.clone()
    }

    #[test]
    fn a_shard_that_goes_takes_only_its_own_keys_along() {
        let all = shards(&[Some(10); 8]);
        let (gone, left) = (&all[3], [&all[..3], &all[4..]].concat());
        for key in 0..2_000 {
            let key = format!("key {key}");
            let before = first(&key, &all);
            let after = first(&key, &left);
            assert!(before == after || before == gone.shard_key, "{key}: {before} -> {after}");
            // The second choice takes over, in whatever order they were listed.
            let mut reversed = all.clone();
            reversed.reverse();
            assert_eq!(order(&key, all.clone()), order(&key, reversed));
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        let all = shards(&[Some(100), Some(200), Some(700), None]);
        let mut counts = [0; 4];
        for key in 0..17_000 {
            let chosen = first(&format!("key {key}"), &all);
            counts[all.iter().position(|c| c.shard_key == chosen).unwrap()] += 1;
        }
        for (count, share) in counts.iter().zip([1_000, 2_000, 7_000, 7_000]) {
            assert!((count - share as i32).abs() < share / 10 + 100, "{counts:?}");
        }
    }
}
