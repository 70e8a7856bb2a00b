//! Where servers are to be found, also after a standby has taken the place of one; and when
//! they were away, so that nobody is blamed for waiting for them.

use crate::cluster::{CLIENT, DATABASE};
use crate::server::Server;
use crate::{Error, Result};
use postgres::config::TargetSessionAttrs;
use postgres::{Client, Config, NoTls};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The master, beside the shards 0 and 1.
pub const MASTER: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Outage {
    server: usize,
    from: Instant,
    to: Option<Instant>,
}

#[derive(Default)]
pub struct Addresses {
    /// Of each server the directories of its sockets.
    hosts: Mutex<[Vec<PathBuf>; 3]>,
    outages: Mutex<Vec<Outage>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Addresses {
    /// A server, or a standby that may take its place.
    pub fn add(&self, number: usize, server: &Server) {
        lock(&self.hosts)[number].push(server.socket_dir().to_owned());
    }

    /// The server was made anew somewhere else.
    pub fn replace(&self, number: usize, server: &Server) {
        lock(&self.hosts)[number] = vec![server.socket_dir().to_owned()];
    }

    /// A client's session on whichever server takes writes there.
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

    /// Whether a server was away at some moment of a time.
    pub fn was_away(&self, number: usize, from: Instant, to: Instant) -> bool {
        lock(&self.outages)
            .iter()
            .any(|o| o.server == number && o.from <= to && o.to.is_none_or(|end| from <= end))
    }
}
