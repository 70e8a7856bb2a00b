//! Tables of all shards as foreign tables of the master: `shard_import()` makes them, the wrapper reads them by a
//! question to all shards, with all that one promises of each key and of who asks.

pub mod columns;
mod condition;
mod error;
pub mod options;
mod plan;
mod scan;
pub mod tables;
mod text;
pub mod wrapper;
