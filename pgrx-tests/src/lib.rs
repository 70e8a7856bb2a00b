//! Real servers, several sessions, crashes and load.
//!
//! Test programs run as an unprivileged user; the scripts tell them where things
//! are: `SHARDMASTER_BINDIR` (programs of the PostgreSQL under test),
//! `SHARDMASTER_RUN_DIR` (servers go below it; the script removes it),
//! `SHARDMASTER_PROGRAMS` (the programs of this crate).

pub mod ack_log;
pub mod asking;
pub mod attacker;
pub mod bench;
pub mod browser;
pub mod chatty_client;
pub mod cluster;
pub mod demo;
pub mod deployer;
pub mod disasters;
pub mod ending;
pub mod env;
pub mod error;
pub mod fixture;
pub mod guarding;
pub mod histories;
pub mod hostile;
pub mod importing;
pub mod looking;
pub mod matrix;
pub mod nginx;
pub mod patroni;
pub mod placement;
pub mod process;
pub mod prometheus;
pub mod promises;
pub mod random;
pub mod records;
pub mod relay;
pub mod reliability;
pub mod repair;
pub mod restoring;
pub mod runner;
pub mod security;
pub mod server;
pub mod split;
pub mod stage;
pub mod standby;
pub mod streaming;
pub mod strike;
pub mod tls;
pub mod two_phase;
pub mod vault;
pub mod verification;
pub mod wait;
pub mod walks;
pub mod workload;
pub mod zoo;

pub use error::{Error, Result};
