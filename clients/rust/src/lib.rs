//! What an application computes for itself in a system that is sharded by shardmaster:
//! the shard of a key by its hash, and identifiers. The extension uses this very code.
//! With the feature `router`, or `tokio` for an asynchronous program, it also has the client's loop.

#[cfg(feature = "tokio")]
pub mod async_router;
mod hash;
mod moving;
#[cfg(feature = "router")]
pub mod router;
#[cfg(any(feature = "router", feature = "tokio"))]
mod routes;
pub mod snowflake;

pub use hash::{Key, shard_for};
pub use moving::is_moving;
