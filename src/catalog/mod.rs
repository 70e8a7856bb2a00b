//! The catalog of the master: one file for each table, typed rows.

pub mod event;
pub mod in_use;
pub mod keyspace;
pub mod routing;
pub mod shard;
pub mod table_policy;
