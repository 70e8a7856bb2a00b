//! The SQL surface: one file for each noun, thin functions that check, call, return.

pub mod agent;
pub mod assignment;
pub mod gateway;
pub mod hash;
pub mod history;
pub mod keyspace;
pub mod placement;
mod regtype;
pub mod routing;
pub mod snowflake;
pub mod split;
pub mod split_check;
pub mod status;
pub mod topology;
