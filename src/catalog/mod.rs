//! The catalog of the master: one file for each table, typed rows.

pub mod keyspace;
pub mod routing;
pub mod shard;
