//! Combinations that nobody thought of: every routine with every kind of argument, called by every level; and
//! every text that a user can give, followed to the shards.

pub mod call;
pub mod routines;
pub mod sql;
pub mod stage;
pub mod texts;
pub mod values;
