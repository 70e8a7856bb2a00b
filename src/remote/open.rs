//! Connecting: host after host, each with its own time limit, as long as the session is wanted.

use super::connection::Connection;
use super::error::RemoteError;
use super::hosts::{Current, Hosts};
use super::params::Params;
use super::wait::{self, Ready};
use crate::remote::interest;
use std::time::{Duration, Instant};

impl Connection {
    /// Connects; every wait ends at the timeout, with an interrupt, or when the session is no longer wanted. Each of
    /// several hosts has its own timeout: that of the connection string if it sets one.
    pub fn open(shard: &str, params: &Params, timeout: Duration) -> Result<Connection, RemoteError> {
        let mut hosts_left: Vec<(&'static str, String)> = Vec::new();
        loop {
            // Later parameters override earlier ones.
            let mut connection = Connection::start(shard, &params.with(&hosts_left), timeout)?;
            // SAFETY: the connection is live.
            let hosts = unsafe { Hosts::of(connection.raw()) };
            let own = hosts.timeout.map_or(timeout, |own| own.min(timeout));
            let Some(silent) = connection.finish_connecting(own)? else { return Ok(connection) };
            hosts_left = hosts.without(&silent).ok_or_else(|| {
                let text = format!("timed out while connecting to {}", silent.text());
                RemoteError::connection(shard, text)
            })?;
        }
    }

    /// Completes the connection. Returns None if the session is open, otherwise the host that has not answered in
    /// time.
    fn finish_connecting(&mut self, timeout: Duration) -> Result<Option<Current>, RemoteError> {
        // SAFETY: the connection is live.
        let mut current = unsafe { Current::of(self.raw()) };
        let mut deadline = Instant::now() + timeout;
        // libpq requires behaving as if the first poll had returned "writing".
        let mut ready = Some(Ready::ReadOrWrite);
        while let Some(wanted) = ready {
            let is_ready =
                wait::for_socket(self.socket(), wanted, deadline.min(Instant::now() + interest::ASK));
            // This is also checked if something arrives all the time.
            self.require_wanted(Instant::now())?;
            if Instant::now() >= deadline {
                return Ok(Some(current));
            }
            if !is_ready {
                continue;
            }
            ready = self.go_on_connecting()?;
            // SAFETY: as above.
            let now = unsafe { Current::of(self.raw()) };
            if now != current {
                (current, deadline) = (now, Instant::now() + timeout);
            }
        }
        Ok(None)
    }
}
