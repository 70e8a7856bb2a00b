//! High availability as operators have it: source, target and master are each two servers under
//! Patroni, which replicate synchronously and fail over by themselves.
//!
//! `Site` starts and stops all of it. `Kills` kills leaders, `operator` drives splits meanwhile,
//! `Heartbeat` measures how long nobody could write, and `summary` says what came of it.

mod etcd;
mod heartbeat;
mod kills;
mod node;
mod operator;
mod pair;
mod site;
mod summary;

pub use heartbeat::{Heartbeat, Span};
pub use kills::Kills;
pub use operator::Operator;
pub use pair::{Pair, Protection};
pub use site::Site;
pub use summary::Summary;

use std::time::Duration;

/// Seconds after which the key of a leader that is silent is free. Patroni requires at least `LOOP_WAIT + 2 *
/// RETRY_TIMEOUT`.
pub const TTL: u64 = 10;
/// Seconds between two checks of Patroni.
pub const LOOP_WAIT: u64 = 1;
/// Seconds in which Patroni retries to reach etcd and its server.
pub const RETRY_TIMEOUT: u64 = 3;

/// `shardmaster.cutover_timeout`
pub const CUTOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// `shardmaster.remote_timeout`
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a port of the loopback that nobody listens on at the moment.
fn free_port() -> crate::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
