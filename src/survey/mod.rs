//! What a live database is like before it is sharded: how the tenant of each table's rows is found, what is in the way,
//! and the call that does something about it. It reads catalogs, statistics and samples, and changes nothing.

pub mod adoption;
mod calls;
mod candidates;
mod error;
pub mod findings;
mod paths;
pub mod request;
mod sample;
mod sample_query;
pub mod script;
pub mod tables;
pub mod tenancy;
mod text;
mod whole;
