//! From a key to its shards.

pub mod assign;
pub mod buckets;
pub mod cache;
mod error;
pub mod interval;
pub mod key_type;
pub mod keyspaces;
pub mod lookup;
pub mod midpoint;
pub mod ordered;
mod owner;
pub mod ranges;
pub mod rollback;
pub mod route_range;
pub mod topology;

pub use error::{RoutingError, name_list};
