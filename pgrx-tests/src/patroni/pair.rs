//! Two servers under Patroni, of which one leads.

use super::node::{Node, Scope};
use crate::process::Directory;
use crate::server::Server;
use crate::{Result, wait};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Two initdb and pg_basebackup on a busy machine, or a rewind that fails and a copy after it.
pub const READY_LIMIT: Duration = Duration::from_secs(120);

/// What an acknowledged commit has been written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The leader alone: a failover forgets commits. To see that tests notice.
    None,
    /// `synchronous_mode`: both servers; while there is no standby the leader alone, and nobody takes
    /// over from it. Patroni 3.0.2 forgets commits all the same: where it is started beside a server
    /// that went on without it, it first writes a configuration without a standby, which lets commits
    /// through that the new leader does not have, and then looks who leads.
    Synchronous,
    /// `synchronous_mode_strict`: both servers, always. Without a standby nobody writes.
    Strict,
}

pub struct Pair {
    pub name: String,
    nodes: [Mutex<Node>; 2],
    directory: Directory,
}

impl Pair {
    /// Makes and starts both; returns when the second is a synchronous standby of the first.
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

    /// Which of the two leads.
    pub fn leader(&self) -> Option<usize> {
        (0..2).find(|n| self.node(*n).is_leader())
    }

    /// The leader, if the other one may take over at once.
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

    /// What is like one server for clients: whichever of the two takes writes.
    pub fn server(&self) -> Result<Server> {
        let addresses = (0..2).map(|n| {
            let node = self.node(n);
            (node.socket_dir().to_owned(), node.port)
        });
        Server::managed(&self.name, self.directory.to_owned(), addresses.collect())
    }
}
