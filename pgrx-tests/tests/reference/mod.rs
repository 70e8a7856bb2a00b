//! Reference tables: each shard has the rows of their origin.

mod changes;
mod divergence;
mod failures;
mod lag_reasons;
mod replication;
mod restored;
