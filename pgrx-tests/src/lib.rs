//! Tests with real servers, several sessions, crashes and load.
//!
//! Test programs run as an unprivileged user. The scripts pass paths in the environment: `SHARDMASTER_BINDIR`
//! has the programs of the PostgreSQL under test, servers are made below `SHARDMASTER_RUN_DIR` (which the
//! script removes), and `SHARDMASTER_PROGRAMS` has the programs of this crate.

pub mod ack_log;
pub mod attacker;
pub mod backups;
pub mod bench;
pub mod browser;
pub mod chatty_server;
pub mod cluster;
pub mod constraints;
pub mod copy_streams;
pub mod demo;
pub mod deployer;
pub mod disasters;
pub mod env;
pub mod error;
pub mod fixture;
pub mod foreign_tables;
pub mod histories;
pub mod hostile;
pub mod key_guards;
pub mod lookups;
pub mod matrix;
pub mod nginx;
pub mod patroni;
pub mod placement;
pub mod process;
pub mod prometheus;
pub mod queries;
pub mod random;
pub mod records;
pub mod relay;
pub mod relayed_cluster;
pub mod reliability;
pub mod repair;
pub mod runner;
pub mod server;
pub mod single_fault;
pub mod split;
pub mod split_outcome;
pub mod standby;
pub mod tls;
pub mod two_phase;
pub mod unqualified_names;
pub mod vault;
pub mod verification;
pub mod wait;
pub mod walks;
pub mod workload;
pub mod zoo;

pub use error::{Error, Result};
