//! Lookup indexes: a key by the value of another column.

mod changes;
mod claims;
mod consistency;
mod edge_cases;
mod removal;
