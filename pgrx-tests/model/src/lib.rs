//! The protocol of docs/internals/protocol.md as a state machine: a master, two shards, workers and writers.
//! Each of them may stop at any point, be restarted, or be set back to an earlier state. `stateright` walks
//! all states. docs/internals/model-map.md names the code of each action.
//!
//! One action is one commit on one server, or one look at it. It includes what a commit reads under its own
//! locks. What another transaction reads is another action.

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
