//! The published test vectors.
#![allow(clippy::unwrap_used)]

use shardmaster_client::{Key, is_moving, shard_for};
use std::num::NonZeroU32;

fn uuid(text: &str) -> [u8; 16] {
    u128::from_str_radix(&text.replace('-', ""), 16).unwrap().to_be_bytes()
}

#[test]
fn every_vector() {
    let vectors = include_str!("vectors.jsonl");
    let mut checked = 0;
    for line in vectors.lines() {
        let (kind, key, count, shard): (String, String, u32, u32) = serde_json::from_str(line).unwrap();
        let parsed = match kind.as_str() {
            "bigint" => Key::BigInt(key.parse().unwrap()),
            "text" => Key::Text(&key),
            _ => Key::Uuid(uuid(&key)),
        };
        assert_eq!(shard_for(parsed, NonZeroU32::new(count).unwrap()), shard, "{line}");
        checked += 1;
    }
    assert!(checked >= 1_000);
}

#[test]
fn every_sqlstate() {
    let mut said = [0, 0];
    for line in include_str!("moving.jsonl").lines() {
        let (state, moving): (String, bool) = serde_json::from_str(line).unwrap();
        assert_eq!(is_moving(&state), moving, "{line}");
        said[usize::from(moving)] += 1;
    }
    assert!(said[0] > 0 && said[1] > 0);
}
