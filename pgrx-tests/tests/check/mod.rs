//! What the checks find before anything moves, and what planning and calls refuse.

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
