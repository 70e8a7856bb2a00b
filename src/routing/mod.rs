//! From a key to its shards.

pub mod assign;
mod error;
pub mod key_type;
pub mod keyspaces;
pub mod lookup;
pub mod rollback;
pub mod topology;

pub use error::{RoutingError, name_list};
