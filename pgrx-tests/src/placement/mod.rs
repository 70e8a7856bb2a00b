//! Tests of placement: invariants, a model, and sessions that reserve, confirm, cancel and die.

pub mod invariant;
pub mod model;
pub mod storm;
