//! A superuser's sessions, which are kept from one query to the next, and from one cell to the next. Opening
//! them took most of the time of the matrix.

use crate::Result;
use crate::cluster::{Cluster, DATABASE};
use crate::server::Server;
use postgres::Client;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

#[derive(Default)]
pub struct Sessions {
    master: Option<Client>,
    shards: [Option<Client>; 2],
}

impl Sessions {
    pub fn master(&mut self, cluster: &Cluster) -> Result<&mut Client> {
        valid(&mut self.master, &cluster.master)
    }

    /// Returns the session on the server of a shard, by its index.
    pub fn shard(&mut self, cluster: &Cluster, index: usize) -> Result<&mut Client> {
        valid(&mut self.shards[index], &cluster.servers[index])
    }
}

/// Returns the session, or a new one if its server was struck meanwhile.
fn valid<'a>(kept: &'a mut Option<Client>, server: &Server) -> Result<&'a mut Client> {
    if let Some(client) = kept
        && client.is_valid(LIMIT).is_err()
    {
        *kept = None;
    }
    match kept {
        Some(client) => Ok(client),
        empty => Ok(empty.insert(server.superuser(DATABASE)?)),
    }
}
