//! The SQL surface: one file for each noun, thin functions that check, call, return.

pub mod routing;
pub mod status;
pub mod topology;
