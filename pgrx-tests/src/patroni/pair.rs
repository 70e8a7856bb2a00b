//! Two servers under Patroni, one of which leads.

use super::node::{Node, Scope};
use crate::process::Directory;
use crate::server::Server;
use crate::{Result, wait};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for two initdb and a pg_basebackup on a busy machine, or for a rewind that fails and a copy after it.
pub const READY_LIMIT: Duration = Duration::from_secs(120);

/// The servers to which an acknowledged commit has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The leader alone, so a failover loses commits. This shows that the tests notice it.
    None,
    /// `synchronous_mode`: both servers. While there is no standby, the leader alone, and nobody takes over
    /// from it. Patroni 3.0.2 loses commits all the same. If it is started beside a server that went on
    /// without it, it first writes a configuration without a standby. That lets commits through that the new
    /// leader does not have. Only then does it check who leads.
    Synchronous,
    /// `synchronous_mode_strict`: always both servers. Without a standby nobody writes.
    Strict,
}

pub struct Pair {
    pub name: String,
    nodes: [Mutex<Node>; 2],
    directory: Directory,
}

impl Pair {
    /// Makes and starts both servers. Returns when the second is a synchronous standby of the first.
    pub fn start(name: &str, etcd: u16, protection: Protection, parameters: &[String]) -> Result<Pair> {
        let directory = Directory::new("pair")?;
        let scope = Scope { name, etcd, protection, parameters };
        let node = |n: usize| Node::create(&scope, &format!("{name}{n}"), directory.join(n.to_string()));
        let pair = Pair { name: name.into(), nodes: [Mutex::new(node(0)?), Mutex::new(node(1)?)], directory };
        for n in 0..2 {
            pair.node(n).start()?;
        }
        Ok(pair)
    }

    pub fn node(&self, n: usize) -> MutexGuard<'_, Node> {
        self.nodes[n].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns which of the two leads.
    pub fn leader(&self) -> Option<usize> {
        (0..2).find(|n| self.node(*n).is_leader())
    }

    /// Returns the leader if the other server may take over at once.
    pub fn protected_leader(&self, protection: Protection) -> Option<usize> {
        let leader = self.leader()?;
        let other = self.node(1 - leader);
        let may = if protection == Protection::None { other.is_replica() } else { other.is_synchronous() };
        may.then_some(leader)
    }

    pub fn wait_protected(&self, protection: Protection) -> Result<()> {
        let what = format!("\"{}\" to have a leader and a standby", self.name);
        let ready = wait::until(&what, READY_LIMIT, || Ok(self.protected_leader(protection)));
        ready.map(drop).map_err(|e| {
            let said = |n: usize| {
                let said = self.node(n).said();
                said.lines().rev().take(15).map(|line| format!("{n}: {line}\n")).collect::<String>()
            };
            e.context(&format!("{}\n{}", said(0), said(1)))
        })
    }

    /// Returns both as one server for clients, which use whichever of the two takes writes.
    pub fn server(&self) -> Result<Server> {
        let addresses = (0..2).map(|n| {
            let node = self.node(n);
            (node.socket_dir().to_owned(), node.port)
        });
        Server::managed(&self.name, self.directory.to_owned(), addresses.collect())
    }
}
