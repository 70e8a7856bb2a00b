//! What tables of a keyspace are like on each shard: compared, and made where they are missing.

mod blocks;
mod compare;
pub mod copy;
pub mod diff;
mod error;
mod inventory;
mod object;
pub mod plan;
