//! What an application computes for itself in a system that is sharded by shardmaster:
//! the shard of a key by its hash. The extension uses this very code.

mod hash;

pub use hash::{Key, shard_for};
