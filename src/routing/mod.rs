//! Routing: from a key to its shards.

pub mod after_start;
pub mod assign;
mod authentication;
pub mod buckets;
pub mod cache;
pub mod change;
pub mod credential;
pub mod endpoint;
pub mod error;
pub mod found;
pub mod guarded;
pub mod held_write;
pub mod key_owner_cache;
pub mod keyspaces;
pub mod lookup;
pub mod midpoint;
mod new_table;
mod owner;
pub mod place;
pub mod ranges;
pub mod rollback;
pub mod route_range;
pub mod signal;
pub mod topology;

pub use error::name_list;
