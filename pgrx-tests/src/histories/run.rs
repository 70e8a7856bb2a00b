//! Concurrent clients, and their histories when they are stopped.

use super::client::Client;
use super::tables::{self, Last, Space};
use super::{Element, Level, Outcome, Transaction};
use crate::cluster::Cluster;
use crate::random::Random;
use crate::workload::route::Router;
use crate::{Result, wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause between two transactions, so that clients do not starve the servers that they watch.
const PACE: Duration = Duration::from_millis(10);
/// More elements than a client writes.
const ELEMENTS: Element = 1_000_000_000;

pub struct Clients {
    space: Space,
    tenants: usize,
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<Vec<Transaction>>>>,
}

impl Clients {
    /// Makes the tables and starts the clients.
    pub fn start(
        cluster: &Cluster,
        (level, space): (Level, Space),
        count: usize,
        tenants: usize,
        seed: u64,
    ) -> Result<Clients> {
        tables::create(cluster, space, tenants)?;
        let names = Arc::new((0..tenants).map(tables::name).collect::<Vec<_>>());
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        for number in 0..count {
            let settings = vec![format!("SET default_transaction_isolation = '{}'", level.name())];
            let mut client = Client {
                router: Router::new(cluster.client_config(), space.keyspace(), names.clone(), settings),
                random: Random::new(seed.wrapping_add(number as u64)),
                tenants,
                element: ELEMENTS * (number as Element + 1),
            };
            let (stop, committed) = (stop.clone(), committed.clone());
            threads.push(std::thread::spawn(move || {
                let mut history = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let one = client.transaction()?;
                    if one.outcome == Outcome::Committed {
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                    history.push(one);
                    std::thread::sleep(PACE);
                }
                Ok(history)
            }));
        }
        Ok(Clients { space, tenants, stop, committed, threads })
    }

    /// Waits until `more` further transactions have committed.
    pub fn wait_for(&self, more: u64, limit: Duration) -> Result<()> {
        let goal = self.committed.load(Ordering::Relaxed) + more;
        wait::until(&format!("{more} more transactions"), limit, || {
            let is_over = self.threads.iter().any(JoinHandle::is_finished);
            Ok((is_over || self.committed.load(Ordering::Relaxed) >= goal).then_some(()))
        })
    }

    /// Ends the clients. Returns their histories as one, and the final state.
    pub fn end(self, cluster: &Cluster) -> Result<(Vec<Transaction>, Last)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = Vec::new();
        for thread in self.threads {
            history.extend(thread.join().map_err(|_| "a client has panicked")??);
        }
        Ok((history, tables::last(cluster, self.space, self.tenants)?))
    }
}
