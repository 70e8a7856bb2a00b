//! The protocol of docs/internals/protocol.md as a state machine: a master, two shards, workers and
//! writers, each of which may stop at any point, be restarted, or be set back to an earlier
//! state. `stateright` walks all states; docs/internals/model.md says which line of the code each action
//! is.
//!
//! One action is one commit on one server, or one look at it. What a commit reads under its own
//! locks is part of it; whatever is read in another transaction is another action.

mod faults;
pub mod forms;
pub mod liveness;
mod model;
mod normal;
mod properties;
pub mod rules;
pub mod state;
mod worker;
mod writers;

pub use model::{Act, Bounds, Split};
