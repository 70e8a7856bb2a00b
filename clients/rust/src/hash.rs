//! The shard of a key by its hash: XXH64 with seed 0 over the key's bytes, modulo the
//! number of shards. Stable for ever; `clients/vectors.jsonl` has what it must give.

use std::num::NonZeroU32;
use xxhash_rust::xxh64::xxh64;

/// A key, as one of the types that have a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    /// Hashed as 8 bytes, the lowest first.
    BigInt(i64),
    /// Hashed as UTF-8.
    Text(&'a str),
    /// Hashed as its 16 bytes, in the order in which they are written.
    Uuid([u8; 16]),
}

impl Key<'_> {
    pub fn hash(&self) -> u64 {
        match self {
            Key::BigInt(number) => xxh64(&number.to_le_bytes(), 0),
            Key::Text(text) => xxh64(text.as_bytes(), 0),
            Key::Uuid(bytes) => xxh64(bytes, 0),
        }
    }
}

impl From<i64> for Key<'_> {
    fn from(number: i64) -> Self {
        Key::BigInt(number)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Key::Text(text)
    }
}

impl From<[u8; 16]> for Key<'_> {
    fn from(uuid: [u8; 16]) -> Self {
        Key::Uuid(uuid)
    }
}

/// The number of the key's shard, or bucket, from 0.
///
/// ```
/// # use std::num::NonZeroU32;
/// let shards = NonZeroU32::new(16).unwrap();
/// assert!(shardmaster_client::shard_for("tenant-1", shards) < 16);
/// ```
pub fn shard_for<'a>(key: impl Into<Key<'a>>, shard_count: NonZeroU32) -> u32 {
    let shard = key.into().hash() % u64::from(shard_count.get());
    // Below a number of 32 bits.
    shard as u32
}
