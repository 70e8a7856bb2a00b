//! Output and calls of operators, and the test harness itself.

mod demo;
mod diagnose;
mod error_hints;
mod exporters;
mod load;
mod metrics;
mod report;
mod servers;
mod shard_move;
mod smoke;
mod split_run;
