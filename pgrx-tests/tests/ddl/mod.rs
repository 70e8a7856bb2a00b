//! Tables whose definitions, partitions or files change while a split runs.

mod apply;
mod concurrent;
mod fingerprints;
mod interference;
mod logical_replication;
mod partitions;
mod renames;
mod resume;
mod rewrites;
mod schema_change;
mod truncate;
