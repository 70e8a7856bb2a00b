//! Tables of all shards as foreign tables of the master: `shard_import()` creates them, and the wrapper reads them
//! through a query to all shards, with the same guarantees about keys and callers.

pub mod columns;
mod condition;
mod error;
pub mod options;
mod plan;
mod scan;
pub mod tables;
mod text;
pub mod wrapper;
