//! Keys: their types, their order, intervals of them, and the scopes of splits. This room uses no server.

pub mod interval;
pub mod key_type;
pub mod ordered;
pub mod scope;
pub mod strategy;
