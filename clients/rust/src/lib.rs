//! What an application computes for itself in a system that is sharded by shardmaster:
//! the shard of a key by its hash, and identifiers. The extension uses this very code.
//! With the feature `router` it also has the client's loop.

mod hash;
mod moving;
#[cfg(feature = "router")]
pub mod router;
pub mod snowflake;

pub use hash::{Key, shard_for};
pub use moving::is_moving;
