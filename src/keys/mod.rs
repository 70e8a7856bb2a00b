//! Keys: their types, their order, intervals of them, and what a split moves. Knows no
//! server.

pub mod interval;
pub mod key_type;
pub mod ordered;
pub mod scope;
pub mod strategy;
