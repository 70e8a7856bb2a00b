//! The addresses of the servers, also after a standby has replaced one, and the times in which they were
//! away, so that waiting for them counts as nobody's fault.

use crate::cluster::{CLIENT, DATABASE};
use crate::server::Server;
use crate::{Error, Result};
use postgres::config::TargetSessionAttrs;
use postgres::{Client, Config, NoTls};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The index of the master, after the shards 0 and 1.
pub const MASTER: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Outage {
    server: usize,
    from: Instant,
    to: Option<Instant>,
}

#[derive(Default)]
pub struct Addresses {
    /// The socket directories of each server.
    hosts: Mutex<[Vec<PathBuf>; 3]>,
    outages: Mutex<Vec<Outage>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Addresses {
    /// Adds a server, or a standby that may replace it.
    pub fn add(&self, number: usize, server: &Server) {
        lock(&self.hosts)[number].push(server.socket_dir().to_owned());
    }

    /// Replaces the addresses of a server that was made anew somewhere else.
    pub fn replace(&self, number: usize, server: &Server) {
        lock(&self.hosts)[number] = vec![server.socket_dir().to_owned()];
    }

    /// Opens a client's session on whichever of the servers takes writes.
    pub fn connect(&self, number: usize) -> Result<Client> {
        let mut config = Config::new();
        for host in &lock(&self.hosts)[number] {
            config.host_path(host);
        }
        config.port(5432).dbname(DATABASE).user(CLIENT).connect_timeout(Duration::from_secs(2));
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect(NoTls).map_err(|e| Error::from(e).context("connecting"))
    }

    pub fn outage_begins(&self, number: usize) {
        lock(&self.outages).push(Outage { server: number, from: Instant::now(), to: None });
    }

    pub fn outage_ends(&self, number: usize) {
        for outage in lock(&self.outages).iter_mut().filter(|o| o.server == number && o.to.is_none()) {
            outage.to = Some(Instant::now());
        }
    }

    /// Whether a server was away at any moment between two times.
    pub fn was_away(&self, number: usize, from: Instant, to: Instant) -> bool {
        lock(&self.outages)
            .iter()
            .any(|o| o.server == number && o.from <= to && o.to.is_none_or(|end| from <= end))
    }
}
