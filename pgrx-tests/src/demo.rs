//! The demo: see `src/bin/demo.rs`.

use crate::cluster::{self, Cluster, DATABASE};
use crate::workload::{self, Verdict, Workload};
use crate::{Error, Result};
use postgres::{Client, NoTls};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Options {
    pub capture: bool,
    pub namespaces: bool,
    pub rows: usize,
    pub tenants: usize,
    pub writers: usize,
    /// How long clients write before and after the move.
    pub seconds: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { capture: true, namespaces: false, rows: 300_000, tenants: 20, writers: 4, seconds: 2 }
    }
}

/// Says what happens, with the time since the start.
struct Narrator {
    started: Instant,
}

impl Narrator {
    fn say(&self, what: &str) {
        println!("{:6.1} s  {what}", self.started.elapsed().as_secs_f64());
    }
}

pub struct Demo<'a> {
    options: &'a Options,
    cluster: Cluster,
    workload: Workload,
    narrator: Narrator,
}

impl Demo<'_> {
    /// Runs all of it; the verdict is printed, too.
    pub fn run(options: &Options) -> Result<Verdict> {
        let mut demo = Demo::prepare(options)?;
        demo.workload.start();
        demo.write_for_a_while()?;
        let split = demo.plan()?;
        let moved = demo.split(split);
        if let Err(error) = &moved {
            demo.narrator.say(&format!("the split did not go through: {error}"));
        } else {
            demo.write_for_a_while()?;
            demo.finish(split)?;
        }
        demo.workload.stop()?;
        demo.narrator.say("clients stopped; comparing their record with what the shards hold");
        let verdict = demo.workload.verdict(&demo.cluster)?;
        println!();
        let summary = demo.summary(split);
        println!("{}\n{verdict}", summary.unwrap_or_else(|e| format!("no metrics: {e}")));
        moved.map(|()| verdict)
    }

    fn prepare(options: &Options) -> Result<Demo<'_>> {
        let narrator = Narrator { started: Instant::now() };
        narrator.say(if options.namespaces {
            "starting a server: the cluster master, two of whose schemas are the shards"
        } else {
            "starting three servers: the cluster master and two shards"
        });
        let make = if options.namespaces { Cluster::namespaces } else { Cluster::servers };
        let cluster = make(2, &[])?;
        cluster::wait_healthy(&mut cluster.superuser()?)?;
        if !options.capture {
            let mut client = cluster.superuser()?;
            client.batch_execute("ALTER SYSTEM SET shardmaster.capture = off")?;
            client.batch_execute("SELECT pg_reload_conf()")?;
            narrator.say("capture of changes is off: this must lose writes");
        }
        narrator.say(&format!("loading {} tenants, {} rows, on shard_a", options.tenants, options.rows));
        let load = workload::Options {
            rows: i64::try_from(options.rows)?,
            writers: options.writers,
            ..workload::Options::tenants(options.tenants)
        };
        let workload = Workload::prepare(&cluster, load)?;
        Ok(Demo { options, cluster, workload, narrator })
    }

    /// Until every client has had its time, and some writes came through.
    fn write_for_a_while(&self) -> Result<()> {
        self.narrator.say(&format!("{} clients write", self.options.writers));
        let until = Instant::now() + Duration::from_secs(self.options.seconds as u64);
        self.workload.wait_for(100, Duration::from_secs(60))?;
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        self.narrator.say(&format!("{} writes acknowledged", self.workload.acknowledged()));
        Ok(())
    }

    fn plan(&self) -> Result<i64> {
        let moving = self.workload.options().moving_names();
        let mut client = self.cluster.superuser()?;
        let query = "SELECT shard_split_plan('shard_a', 'shard_b', $1, 'demo')";
        let split: i64 = client.query_one(query, &[&moving])?.get(0);
        let tenants = self.options.tenants;
        self.narrator
            .say(&format!("split {split} planned: {} of {tenants} tenants to shard_b", moving.len()));
        Ok(split)
    }

    /// The procedure says how far it is, once a second.
    fn split(&self, split: i64) -> Result<()> {
        self.narrator.say(&format!("CALL shard_split_run({split})"));
        let mut config = self.cluster.master.config(DATABASE, "postgres");
        config.notice_callback(|notice| println!("          {}", notice.message()));
        let mut client: Client = config.connect(NoTls)?;
        client.batch_execute(&format!("CALL shard_split_run({split})")).map_err(Error::from)?;
        self.narrator.say("the tenants have moved");
        Ok(())
    }

    /// Removes the moved rows from the source, while clients write.
    fn finish(&self, split: i64) -> Result<()> {
        self.narrator.say(&format!("SELECT shard_split_finish({split}): the source lets go of the rows"));
        let mut client = self.cluster.superuser()?;
        client.execute("SELECT shard_split_finish($1)", &[&split])?;
        client.query_one("SELECT shard_split_wait($1, 'finished', '2 min')", &[&split])?;
        self.narrator.say("finished");
        Ok(())
    }

    fn summary(&self, split: i64) -> Result<String> {
        let query = "SELECT total_rows_copied, phase, fence_ms::float8,
                extract(epoch FROM backfill_completed_at - backfill_started_at)::float8,
                extract(epoch FROM cutover_at - backfill_started_at)::float8
            FROM shard_split_metrics($1)";
        let row = self.cluster.superuser()?.query_one(query, &[&split])?;
        let rows: Option<i64> = row.get(0);
        let (fence, copy, whole): (Option<f64>, Option<f64>, Option<f64>) =
            (row.get(2), row.get(3), row.get(4));
        let rows = rows.unwrap_or(0);
        let rate = copy.filter(|seconds| *seconds > 0.0).map(|seconds| rows as f64 / seconds);
        let or_dash = |value: Option<f64>, unit: &str| value.map_or("-".into(), |v| format!("{v:.1}{unit}"));
        let lines = [
            ("phase of the split", row.get::<_, String>(1)),
            ("rows moved", rows.to_string()),
            ("rows/s while copying", rate.map_or("-".into(), |rate| format!("{rate:.0}"))),
            ("from the first row to the cutover", or_dash(whole, " s")),
            ("fence", or_dash(fence, " ms")),
        ];
        Ok(lines.map(|(name, value)| format!("{name:<38}{value}")).join("\n"))
    }
}
