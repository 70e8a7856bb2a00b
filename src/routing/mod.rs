//! From a key to its shards.

pub mod assign;
pub mod buckets;
mod error;
pub mod interval;
pub mod key_type;
pub mod keyspaces;
pub mod lookup;
pub mod midpoint;
pub mod ordered;
pub mod ranges;
pub mod rollback;
pub mod route_range;
pub mod topology;

pub use error::{RoutingError, name_list};
