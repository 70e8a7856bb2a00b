//! Background workers and how a session wakes them.
//!
//! - The **launcher** is registered at server start. It is connected to no database, so that it outlives all of them:
//!   it waits until `shardmaster.database` exists and keeps one coordinator running there.
//! - The **coordinator** is connected to that database. It finds the splits that have work and keeps one worker
//!   running for each, up to `shardmaster.max_split_workers`. It also keeps the **services** running that have work:
//!   those are the rows of `services.rs`.
//! - A **split worker** does the work of one split and ends when nothing is left to do.
//!
//! Without `shared_preload_libraries` there is neither launcher nor coordinator, and the sessions that request work
//! start split workers themselves.

pub mod coordinator;
mod dropping;
pub mod hooks;
mod inquirer;
mod jobs;
pub mod launcher;
mod lease_expirer;
pub mod lock;
mod lookup_worker;
mod references;
mod service;
pub mod services;
pub mod split;
pub mod splits;
mod start;
mod supervisor;
mod two_phase_recovery;

/// Registers the launcher and the hooks; it is called from `_PG_init` at the server's start.
pub fn register() {
    launcher::register();
    hooks::register();
}
