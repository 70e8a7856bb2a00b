//! The findings of the checks before anything moves, and the refusals of planning and other calls.

mod constraints;
mod dependencies;
mod foreign_keys;
mod functions;
mod refusals;
mod remarks;
mod schemas;
mod shard_check;
mod table_objects;
mod unregistered_tables;
