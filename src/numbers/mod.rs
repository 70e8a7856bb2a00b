//! Sequences of a keyspace's tables on several shards: whether two of them can give out the same number, and how each
//! shard gets numbers of its own. See docs/guides/identifiers.md.

pub mod behind;
pub mod block;
mod error;
pub mod introspect;
mod plan;
pub mod progression;
pub mod rows;
pub mod spread;
