//! etcd, and the pairs of a cluster: its master and two shards.

use super::etcd::Etcd;
use super::pair::{Pair, Protection};
use super::{CUTOVER_TIMEOUT, REMOTE_TIMEOUT};
use crate::Result;
use crate::cluster::{Cluster, DATABASE};

/// The index of the master among the pairs. The shards follow.
pub const MASTER: usize = 0;
pub const NAMES: [&str; 3] = ["master", "shard_a", "shard_b"];

pub struct Site {
    // The cluster is a client of the pairs, and is dropped before them.
    pub cluster: Cluster,
    pub pairs: Vec<Pair>,
    pub protection: Protection,
    _etcd: Etcd,
}

impl Site {
    /// Starts everything. Returns when each pair has a leader and a standby that may take over. `parameters`
    /// are more lines of YAML for the master.
    pub fn start(protection: Protection, parameters: &[String]) -> Result<Site> {
        let etcd = Etcd::start()?;
        let mut pairs = Vec::new();
        for (index, name) in NAMES.into_iter().enumerate() {
            let mut lines = common();
            if index == MASTER {
                lines.extend(of_master());
                lines.extend(parameters.iter().cloned());
            }
            pairs.push(Pair::start(name, etcd.port, protection, &lines)?);
        }
        for pair in &pairs {
            pair.wait_protected(protection)?;
        }
        let shards = pairs[1..].iter().map(Pair::server).collect::<Result<Vec<_>>>()?;
        let cluster = Cluster::of_servers(pairs[MASTER].server()?, shards)?;
        Ok(Site { cluster, pairs, protection, _etcd: etcd })
    }

    /// Waits until every pair has its leader and its standby again.
    pub fn wait_protected(&self) -> Result<()> {
        self.pairs.iter().try_for_each(|pair| pair.wait_protected(self.protection))
    }
}

/// Parameters of every server. Only processes are killed here, and what they have written stays in the files.
/// So nothing is lost without fsync, and it leaves the machine more time for the tests.
fn common() -> Vec<String> {
    let lines = [
        "fsync: 'off'",
        "max_connections: 100",
        "max_prepared_transactions: 20",
        "max_worker_processes: 24",
        "shared_buffers: 48MB",
        "max_wal_size: 256MB",
        // This makes a returning standby catch up sooner.
        "wal_retrieve_retry_interval: 300ms",
        "log_line_prefix: '%m [%p] %q%a '",
    ];
    lines.map(str::to_owned).to_vec()
}

fn of_master() -> Vec<String> {
    vec![
        "shared_preload_libraries: shardmaster".to_owned(),
        format!("shardmaster.database: {DATABASE}"),
        "shardmaster.reverse: 'on'".to_owned(),
        "shardmaster.tail_interval: 50".to_owned(),
        "shardmaster.watch_interval: 1000".to_owned(),
        format!("shardmaster.cutover_timeout: {}", CUTOVER_TIMEOUT.as_millis()),
        format!("shardmaster.remote_timeout: {}", REMOTE_TIMEOUT.as_millis()),
    ]
}
