//! Connecting: host after host, each with its own time, as long as somebody wants it.

use super::connection::Connection;
use super::error::RemoteError;
use super::hosts::{Current, Hosts};
use super::params::Params;
use super::wait::{self, Ready};
use super::wanted;
use std::time::{Duration, Instant};

impl Connection {
    /// Connects; every wait ends at the timeout or with an interrupt, and where nobody wants it
    /// any more. Of several hosts each has its own timeout, that of
    /// the connection string where it has one.
    pub fn open(shard: &str, params: &Params, timeout: Duration) -> Result<Connection, RemoteError> {
        let mut hosts_left: Vec<(&'static str, String)> = Vec::new();
        loop {
            // What comes last counts.
            let mut connection = Connection::start(shard, &params.with(&hosts_left), timeout)?;
            // SAFETY: a live connection.
            let hosts = unsafe { Hosts::of(connection.raw()) };
            let own = hosts.timeout.map_or(timeout, |own| own.min(timeout));
            let Some(silent) = connection.finish_connecting(own)? else { return Ok(connection) };
            hosts_left = hosts.without(&silent).ok_or_else(|| {
                let text = format!("timed out while connecting to {}", silent.text());
                RemoteError::connection(shard, text)
            })?;
        }
    }

    /// None: the session is there. Otherwise the host that has not answered in time.
    fn finish_connecting(&mut self, timeout: Duration) -> Result<Option<Current>, RemoteError> {
        // SAFETY: a live connection.
        let mut current = unsafe { Current::of(self.raw()) };
        let mut deadline = Instant::now() + timeout;
        // libpq asks to behave as if the first poll had said "writing".
        let mut ready = Some(Ready::ReadOrWrite);
        while let Some(wanted) = ready {
            let is_ready =
                wait::for_socket(self.socket(), wanted, deadline.min(Instant::now() + wanted::ASK));
            // Also where something comes all the time.
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
