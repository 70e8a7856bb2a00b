//! Load on a cluster, a record of what was acknowledged, and the comparison.
//!
//! ```no_run
//! # use shardmaster_tests::{Result, cluster::Cluster, workload::{Options, Workload}};
//! # fn example() -> Result<()> {
//! let cluster = Cluster::servers(2, &[])?;
//! let mut workload = Workload::prepare(&cluster, Options::default())?;
//! workload.start();
//! // ... move tenants, crash servers ...
//! workload.stop()?;
//! let report = workload.report(&cluster)?;
//! assert!(report.is_clean(), "{report}");
//! # Ok(()) }
//! ```

mod comparison;
mod model;
mod op;
mod report;
pub(crate) mod route;
mod schema;
mod writer;

pub use model::{Ledger, Number, Row, State, Table, Tenant};
pub use report::Report;
pub use writer::Ack;

use crate::cluster::{CLIENT, Cluster, DATABASE};
use crate::{Error, Result, wait};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter times without an acknowledgement are normal on a busy machine.
const NOTABLE_GAP: Duration = Duration::from_millis(500);

/// The special operations of writers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// The percentage of operations that change a primary key, exchange unique values of two rows, or roll
    /// back to a savepoint.
    pub special: usize,
    /// Whether these include rows that change their shard key.
    pub retenant: bool,
}

/// The strategy of the keyspace.
#[derive(Clone, Debug)]
pub enum Sharding {
    /// For each tenant the index of the shard on which it starts.
    Directory(Vec<usize>),
    /// This many buckets, on this many shards in turn.
    Hash { buckets: i32, shards: usize },
    /// Ranges that end at these keys, and a last one without an end, on the shards in turn.
    Range(Vec<&'static str>),
}

impl Sharding {
    pub fn keyspace(&self) -> &'static str {
        match self {
            Sharding::Directory(_) => "default",
            Sharding::Hash { .. } | Sharding::Range(_) => "tenants",
        }
    }

    /// Sets up the keyspace on the master.
    fn set_up(&self, master: &mut postgres::Client, shards: &[String], tenants: &[String]) -> Result<()> {
        match self {
            Sharding::Directory(homes) => {
                for (index, shard) in shards.iter().enumerate() {
                    let here = |tenant: &usize| homes[*tenant] == index;
                    let keys: Vec<&str> =
                        (0..tenants.len()).filter(here).map(|t| tenants[t].as_str()).collect();
                    if !keys.is_empty() {
                        master.execute("SELECT shard_assign_many($1, $2)", &[&keys, &shard])?;
                    }
                }
            }
            Sharding::Hash { buckets, shards: used } => {
                let query = "SELECT shard_keyspace_add('tenants', 'hash', $1, shards => $2)";
                master.execute(query, &[buckets, &&shards[..*used]])?;
            }
            Sharding::Range(cuts) => {
                master.execute("SELECT shard_keyspace_add('tenants', 'range')", &[])?;
                let uppers = cuts.iter().copied().map(Some).chain([None]);
                let mut lower: Option<&str> = None;
                for (upper, shard) in uppers.zip(shards.iter().cycle()) {
                    let query = "SELECT shard_assign_range($1, $2, $3, 'tenants')";
                    master.execute(query, &[&lower, &upper, &shard])?;
                    lower = upper;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub tenants: Vec<String>,
    pub sharding: Sharding,
    /// Tenants that will move. It only affects which stalls are reported separately.
    pub moving: BTreeSet<Tenant>,
    pub rows: Number,
    pub writers: usize,
    /// The pause between two operations of one writer.
    pub pause: Duration,
    pub mix: Mix,
    /// Statements that each session of a writer runs first.
    pub settings: Vec<String>,
    pub seed: u64,
}

impl Default for Options {
    /// Returns options with twenty tenants on the first shard. Every second one moves.
    fn default() -> Options {
        Options::tenants(20)
    }
}

impl Options {
    /// Returns options with `count` tenants on the first shard. Every second one moves.
    pub fn tenants(count: usize) -> Options {
        Options {
            tenants: (0..count).map(|n| format!("tenant-{n:02}")).collect(),
            sharding: Sharding::Directory(vec![0; count]),
            moving: (0..count).step_by(2).collect(),
            rows: 300_000,
            writers: 4,
            pause: Duration::ZERO,
            mix: Mix::default(),
            settings: Vec::new(),
            seed: 1,
        }
    }

    /// Returns the names of the tenants that move.
    pub fn moving_names(&self) -> Vec<&str> {
        self.moving.iter().map(|tenant| self.tenants[*tenant].as_str()).collect()
    }
}

/// The state that writers share with their caller.
struct Shared {
    tenants: Arc<Vec<String>>,
    moving: BTreeSet<Tenant>,
    parents: Arc<HashMap<Tenant, Vec<i64>>>,
    pause: Duration,
    mix: Mix,
    writers: usize,
    seed: u64,
    started: Instant,
    stop: AtomicBool,
    abandon: AtomicBool,
    acknowledged: AtomicU64,
    unexpected: AtomicU64,
}

pub struct Workload {
    options: Options,
    master: postgres::Config,
    start: schema::Start,
    shared: Option<Arc<Shared>>,
    threads: Vec<JoinHandle<writer::Record>>,
    records: Vec<writer::Record>,
}

impl Workload {
    /// Makes tables on every shard, loads the tenants' rows on their shards, and registers both with the master.
    pub fn prepare(cluster: &Cluster, options: Options) -> Result<Workload> {
        let start = schema::start_rows(options.rows, options.tenants.len());
        let mut master = cluster.superuser()?;
        let keyspace = options.sharding.keyspace();
        let shards: Vec<String> = cluster.shards.iter().map(|shard| shard.key.clone()).collect();
        options.sharding.set_up(&mut master, &shards, &options.tenants)?;
        let homes = comparison::routes(cluster, &options.tenants, keyspace)?;
        for (index, shard) in cluster.shards.iter().enumerate() {
            let mut client = cluster.owner_of(shard)?;
            schema::create_tables(&mut client)?;
            schema::load(&mut client, &start, &options.tenants, |tenant| homes[tenant] == index)?;
            schema::create_indexes(&mut client)?;
        }
        for table in Table::ALL {
            master.execute("SELECT shard_table_add($1, 'tenant_id', $2)", &[&table.name(), &keyspace])?;
        }
        let master = cluster.master.config(DATABASE, CLIENT);
        Ok(Workload { options, master, start, shared: None, threads: Vec::new(), records: Vec::new() })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Starts the writers.
    pub fn start(&mut self) {
        let shared = Arc::new(Shared {
            tenants: Arc::new(self.options.tenants.clone()),
            moving: self.options.moving.clone(),
            parents: Arc::new(self.start.accounts.clone()),
            pause: self.options.pause,
            mix: self.options.mix,
            writers: self.options.writers,
            seed: self.options.seed,
            started: Instant::now(),
            stop: AtomicBool::new(false),
            abandon: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            unexpected: AtomicU64::new(0),
        });
        for (number, ledger) in self.share_out().into_iter().enumerate() {
            let settings = self.options.settings.clone();
            let keyspace = self.options.sharding.keyspace();
            let router = route::Router::new(self.master.clone(), keyspace, shared.tenants.clone(), settings);
            let writer = writer::Writer::new(number, self.start.next, router, ledger, shared.clone());
            self.threads.push(std::thread::spawn(move || writer.run()));
        }
        self.shared = Some(shared);
    }

    /// Distributes the rows. A writer owns the rows whose number modulo the number of writers is its own.
    fn share_out(&mut self) -> Vec<Ledger> {
        let mut shares = vec![Ledger::default(); self.options.writers];
        let writers = self.options.writers as Number;
        for (table, number, state) in std::mem::take(&mut self.start.ledger).iter() {
            let owner = (number - self.start.next).rem_euclid(writers) as usize;
            if let State::Is(Some(row)) = state {
                shares[owner].acknowledged(model::Change { table, number, after: Some(row.clone()) });
            }
        }
        shares
    }

    /// Returns the number of writes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.acknowledged.load(Ordering::Relaxed))
    }

    /// Returns when the writers started. `Ack::at` counts from then.
    pub fn started(&self) -> Option<Instant> {
        self.shared.as_ref().map(|shared| shared.started)
    }

    /// Waits until `more` further writes have been acknowledged.
    pub fn wait_for(&self, more: u64, limit: Duration) -> Result<()> {
        let goal = self.acknowledged() + more;
        wait::until(&format!("{more} more writes"), limit, || Ok((self.acknowledged() >= goal).then_some(())))
    }

    /// Lets each writer finish its operation, and collects the records.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(shared) = &self.shared {
            shared.stop.store(true, Ordering::Relaxed);
        }
        for thread in self.threads.drain(..) {
            self.records.push(thread.join().map_err(|_| Error::from("a writer panicked"))?);
        }
        Ok(())
    }

    /// Returns the acknowledgements of all writers with their times. Call it after `stop`.
    pub fn acks(&self) -> Vec<Ack> {
        let mut acks: Vec<Ack> = self.records.iter().flat_map(|record| record.acks.iter().copied()).collect();
        acks.sort_by_key(|ack| ack.at);
        acks
    }

    /// Returns the times between two acknowledgements of one writer that are longer than half a second. Call
    /// it after `stop`.
    pub fn gaps(&self) -> Vec<(Instant, Instant)> {
        let Some(started) = self.started() else { return Vec::new() };
        let of = |record: &writer::Record| -> Vec<(Instant, Instant)> {
            let pairs = record.acks.windows(2).map(|two| (two[0].at, two[1].at));
            let long = pairs.filter(|(from, to)| to.saturating_sub(*from) > NOTABLE_GAP);
            long.map(|(from, to)| (started + from, started + to)).collect()
        };
        self.records.iter().flat_map(of).collect()
    }

    /// Compares the record with the rows on the shards, row by row. The split must have finished on the
    /// source, which has the moved rows by design until then.
    pub fn report(&self, cluster: &Cluster) -> Result<Report> {
        let mut ledger = Ledger::default();
        for record in &self.records {
            ledger.merge(record.ledger.clone());
        }
        let routed = comparison::routes(cluster, &self.options.tenants, self.options.sharding.keyspace())?;
        let found = comparison::read_shards(cluster, &self.options.tenants)?;
        let comparison = comparison::compare(&ledger, &found, &routed);
        Ok(Report::new(comparison, &ledger, &self.records))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // The test has failed. Its servers go away, and no writer may wait for them.
        if let Some(shared) = &self.shared {
            shared.abandon.store(true, Ordering::Relaxed);
        }
        let _ = self.stop();
    }
}
