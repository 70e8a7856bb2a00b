//! The setup of the benchmarks: a master, two shards, one table.

use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use crate::random::Random;
use crate::split::Split;
use crate::{Result, env};
use postgres::{Client, Config, NoTls};
use shardmaster_client::shard_for;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The limit of waits in benchmarks, longer than anything takes that works.
pub const LIMIT: Duration = Duration::from_secs(900);

/// Large enough that no checkpoint falls into a measurement.
const CONFIG: [&str; 5] = [
    "shared_buffers = '512MB'",
    "max_wal_size = '16GB'",
    "checkpoint_timeout = '1h'",
    "autovacuum = off",
    "wal_level = logical", // logical replication is the reference of the tail
];

pub struct Rig {
    pub cluster: Cluster,
    pub rows: i64,
    /// The number of buckets of the keyspace, if it has any.
    buckets: Option<i32>,
}

impl Rig {
    /// Makes `rows` rows of about 200 bytes, in the order of their ids, with the tenants interleaved, all on
    /// the first shard.
    pub fn new(rows: i64, tenants: i64) -> Result<Rig> {
        let names: Vec<i32> = (0..i32::try_from(tenants)?).collect();
        let rig = Rig::with_rows(rows, &names, None)?;
        let mut master = rig.cluster.superuser()?;
        master.execute("SELECT shard_table_add('items', 'tenant_id')", &[])?;
        let keys: Vec<String> = names.iter().map(i32::to_string).collect();
        master.execute("SELECT shard_assign_many($1, 'shard_a')", &[&keys])?;
        Ok(rig)
    }

    /// Makes the rows in a keyspace of `buckets` buckets. Even tenants have even buckets.
    pub fn of_buckets(rows: i64, tenants: i64, buckets: i32) -> Result<Rig> {
        let count = NonZeroU32::new(buckets.unsigned_abs()).ok_or("no buckets")?;
        let is_even = |key: &i32| shard_for(i64::from(*key), count).is_multiple_of(2);
        let (mut even, mut odd) = ((0..).filter(is_even), (0..).filter(|key| !is_even(key)));
        let mut next = |index: i64| if index % 2 == 0 { even.next() } else { odd.next() };
        let names: Vec<i32> = (0..tenants).filter_map(&mut next).collect();
        let rig = Rig::with_rows(rows, &names, Some(buckets))?;
        let mut master = rig.cluster.superuser()?;
        let keyspace =
            "SELECT shard_keyspace_add('tenants', 'hash', $1, key_type => 'integer', shards => '{shard_a}')";
        master.execute(keyspace, &[&buckets])?;
        master.execute("SELECT shard_table_add('items', 'tenant_id', 'tenants')", &[])?;
        Ok(rig)
    }

    fn with_rows(rows: i64, names: &[i32], buckets: Option<i32>) -> Result<Rig> {
        let tenants = names.len();
        println!("  {rows} rows, {tenants} tenants");
        let cluster = Cluster::servers(2, &CONFIG)?;
        for shard in &cluster.shards {
            let mut client = cluster.owner_of(shard)?;
            client.batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TABLE items (id bigint PRIMARY KEY, tenant_id int NOT NULL, v int NOT NULL,
                                     filler text NOT NULL) WITH (fillfactor = 90);
                 GRANT SELECT, INSERT, UPDATE, DELETE ON items TO {CLIENT}"
            ))?;
        }
        let rig = Rig { cluster, rows, buckets };
        let insert = "INSERT INTO items SELECT g, ($1::int[])[g % $2::bigint + 1], 0, repeat(md5(g::text), 5)
                        FROM generate_series(0, $3::bigint - 1) g";
        rig.source()?.execute(insert, &[&names, &(tenants as i64), &rows])?;
        rig.source()?.batch_execute("VACUUM (ANALYZE, FREEZE) items")?;
        Ok(rig)
    }

    /// Installs the extension on the source and on the target, or removes it.
    pub fn install(&self, installed: [bool; 2]) -> Result<()> {
        for (mut shard, installed) in [self.source()?, self.target()?].into_iter().zip(installed) {
            shard.batch_execute(if installed {
                "CREATE EXTENSION IF NOT EXISTS shardmaster"
            } else {
                "DROP EXTENSION IF EXISTS shardmaster"
            })?;
        }
        Ok(())
    }

    pub fn source(&self) -> Result<Client> {
        self.cluster.owner_of(&self.cluster.shards[0])
    }

    pub fn target(&self) -> Result<Client> {
        self.cluster.owner_of(&self.cluster.shards[1])
    }

    /// Plans a split of the first `count` even tenants, or of the even buckets.
    pub fn plan(&self, count: i64) -> Result<Split<'_>> {
        if let Some(buckets) = self.buckets {
            let plan = format!(
                "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
                   FROM generate_series(0, {buckets} - 1, 2) b"
            );
            return Split::plan_by(&self.cluster, &plan);
        }
        let keys: Vec<String> = (0..count).map(|t| (2 * t).to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Split::plan(&self.cluster, "shard_a", "shard_b", &keys)
    }

    /// Writes dirty pages out, so that those of one measurement do not slow down the next.
    pub fn settle(&self) -> Result<()> {
        self.source()?.batch_execute("CHECKPOINT")?;
        self.target()?.batch_execute("CHECKPOINT")?;
        Ok(())
    }

    /// An ordinary client's connection to the source.
    pub fn client_config(&self) -> Config {
        self.cluster.servers[0].config(DATABASE, CLIENT)
    }

    /// Copies the rows that `plan(count)` moves by `COPY | COPY` in binary, through `pipes` pipes at once.
    /// Returns rows a second.
    pub fn copy_pipes(&self, count: i64, pipes: i64) -> Result<f64> {
        let psql = |server: usize, sql: &str| {
            let place = self.cluster.servers[server].conninfo(DATABASE, "postgres");
            format!(
                "'{}' -X -q '{place}' -c \"{sql}\"",
                env::bindir().unwrap_or_default().join("psql").display()
            )
        };
        let pipe = |number: i64| {
            let (lower, upper) = (2 * count * number / pipes, 2 * count * (number + 1) / pipes);
            let query = format!("tenant_id % 2 = 0 AND tenant_id >= {lower} AND tenant_id < {upper}");
            let out = psql(0, &format!("COPY (SELECT * FROM items WHERE {query}) TO STDOUT (FORMAT binary)"));
            format!("{{ {out} | {}; }} & ", psql(1, "COPY items FROM STDIN (FORMAT binary)"))
        };
        let all: String = (0..pipes).map(pipe).collect();
        let started = Instant::now();
        env::run(Command::new("bash").args(["-c", &format!("{all} wait")]))?;
        let seconds = started.elapsed().as_secs_f64();
        let rows: i64 = self.target()?.query_one("SELECT count(*) FROM items", &[])?.get(0);
        let expected = self.source()?.query_one(
            "SELECT count(*) FROM items WHERE tenant_id % 2 = 0 AND tenant_id < $1::bigint",
            &[&(2 * count)],
        )?;
        if rows != expected.get::<_, i64>(0) {
            return Err(format!("the pipes brought {rows} rows over").into());
        }
        Ok(rows as f64 / seconds)
    }

    /// Copies with a split of `count` tenants until it is caught up, then rolls it back. Returns rows,
    /// seconds of the copy, and the worker's peak of RssAnon in MB.
    pub fn backfill(&self, count: i64) -> Result<(i64, f64, f64)> {
        let split = self.plan(count)?;
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)?;
        split.call("run_backfill")?;
        let peak = self.watch_memory(&split)?;
        split.wait("cutover_pending", LIMIT)?;
        let rows = split.metric::<Option<i64>>("total_rows_copied")?.unwrap_or(0);
        let seconds: f64 =
            split.metric("extract(epoch FROM backfill_completed_at - backfill_started_at)::float8")?;
        self.take_back(&split)?;
        Ok((rows, seconds, peak))
    }

    /// Rolls back, and truncates the target's table.
    pub fn take_back(&self, split: &Split) -> Result<()> {
        split.call("rollback")?;
        split.wait("rolled_back", LIMIT)?;
        self.target()?.batch_execute("TRUNCATE items")?;
        Ok(())
    }

    /// Samples the worker's private memory until the copy is complete.
    fn watch_memory(&self, split: &Split) -> Result<f64> {
        let mut master = self.cluster.superuser()?;
        let query = "SELECT (SELECT worker_pid FROM shardmaster.split_plan WHERE id = $1),
                phase NOT IN ('dual_write', 'backfill') OR activity = 'failed' FROM shard_split_metrics($1)";
        let query = master.prepare(query)?;
        let started = Instant::now();
        let mut peak = 0_f64;
        loop {
            let row = master.query_one(&query, &[&split.id])?;
            if let Some(pid) = row.get::<_, Option<i32>>(0) {
                peak = peak.max(rss_anon(pid).unwrap_or(0.0));
            }
            if row.get(1) || started.elapsed() > LIMIT {
                return Ok(peak);
            }
            std::thread::sleep(Duration::from_millis(20)); // the interval of a sample
        }
    }
}

/// Returns the private memory of a process in MB, or None if it is gone.
fn rss_anon(pid: i32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}

/// Closed loops of single-row updates on the source, in independent sessions.
pub struct WriteLoad {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl WriteLoad {
    pub fn start(rig: &Rig, sessions: u64) -> WriteLoad {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = (0..sessions).map(|session| {
            let (config, rows) = (rig.client_config(), rig.rows as usize);
            let (count, stop) = (count.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut client = config.connect(NoTls)?;
                let update = client.prepare("UPDATE items SET v = v + 1 WHERE id = $1")?;
                let mut random = Random::new(session);
                while !stop.load(Ordering::Relaxed) {
                    client.execute(&update, &[&(random.below(rows) as i64)])?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let threads = threads.collect();
        WriteLoad { count, stop, threads }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns updates a second over the given time.
    pub fn rate_over(&self, while_: Duration) -> f64 {
        let (count, started) = (self.count(), Instant::now());
        std::thread::sleep(while_); // the measurement's length
        (self.count() - count) as f64 / started.elapsed().as_secs_f64()
    }

    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a session of the load panicked")??;
        }
        Ok(())
    }
}

impl Drop for WriteLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
