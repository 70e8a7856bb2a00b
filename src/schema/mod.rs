//! What tables of a keyspace are like on each shard: compared, and made where they are missing.

mod blocks;
pub mod compare;
pub mod copy;
pub mod diff;
mod error;
pub mod inventory;
pub mod object;
pub mod plan;
