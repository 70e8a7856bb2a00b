//! Reference tables: each shard has what their origin has.

mod changes;
mod divergence;
mod failures;
mod lag_reasons;
mod replication;
mod restored;
