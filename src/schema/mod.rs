//! The tables of a keyspace on each shard: compared, and created where they are missing.

mod blocks;
pub mod compare;
pub mod copy;
pub mod diff;
mod error;
pub mod inventory;
pub mod object;
pub mod plan;
