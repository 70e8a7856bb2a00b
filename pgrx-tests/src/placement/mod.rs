//! Placement under test: what must hold at any time, a model of it, and sessions that
//! reserve, confirm, cancel and die.

pub mod invariant;
pub mod model;
pub mod storm;
