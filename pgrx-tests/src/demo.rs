//! The demo: see `src/bin/demo.rs`.

use crate::Result;
use crate::cluster::{self, Cluster};
use crate::split::Split;
use crate::workload::{self, Report, Workload};
use std::time::{Duration, Instant};

const FINISH_LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Options {
    pub capture: bool,
    pub namespaces: bool,
    pub rows: usize,
    pub tenants: usize,
    pub writers: usize,
    /// How long clients write before and after the move, in seconds.
    pub seconds: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { capture: true, namespaces: false, rows: 300_000, tenants: 20, writers: 4, seconds: 2 }
    }
}

/// Prints what happens, with the time since the start.
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
    /// Runs the demo and prints its report.
    pub fn run(options: &Options) -> Result<Report> {
        let mut demo = Demo::prepare(options)?;
        demo.workload.start();
        let split = demo.move_tenants();
        // This happens after an error as well, since the state of the shards is then worth knowing.
        demo.workload.stop()?;
        demo.narrator.say("clients stopped; comparing their record with what the shards hold");
        let report = demo.workload.report(&demo.cluster)?;
        if let Ok(split) = &split {
            println!("\n{}", demo.summary(*split)?);
        }
        println!("{report}");
        split.map(|_| report)
    }

    fn move_tenants(&self) -> Result<i64> {
        self.write_for_a_while()?;
        let split = self.plan()?;
        self.split(&split)?;
        Ok(split.id)
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
            cluster.set("shardmaster.capture", "off")?;
            // The copy runs in one snapshot. In a later one, a row that a writer has moved behind the cursor
            // would be found twice, and end the copy with an error.
            cluster.set("shardmaster.step_time", "10min")?;
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

    /// Waits until the clients have had their time, and some writes were acknowledged.
    fn write_for_a_while(&self) -> Result<()> {
        self.narrator.say(&format!("{} clients write", self.options.writers));
        let until = Instant::now() + Duration::from_secs(self.options.seconds as u64);
        self.workload.wait_for(100, Duration::from_secs(60))?;
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        self.narrator.say(&format!("{} writes acknowledged", self.workload.acknowledged()));
        Ok(())
    }

    fn plan(&self) -> Result<Split<'_>> {
        let moving = self.workload.options().moving_names();
        let split = Split::plan(&self.cluster, "shard_a", "shard_b", &moving)?;
        let (count, tenants) = (moving.len(), self.options.tenants);
        self.narrator.say(&format!("split {} planned: {count} of {tenants} tenants to shard_b", split.id));
        Ok(split)
    }

    /// Moves the tenants under load, and removes the moved rows from the source.
    fn split(&self, split: &Split) -> Result<()> {
        self.narrator.say(&format!("CALL shard_split_run({})", split.id));
        // The procedure reports its progress once a second.
        split.run(|line| println!("          {line}"))?;
        self.narrator.say("the tenants have moved");
        self.write_for_a_while()?;
        self.narrator
            .say(&format!("SELECT shard_split_finish({}): the source lets go of the rows", split.id));
        if self.options.capture {
            split.finish(FINISH_LIMIT)?;
            self.narrator.say("finished");
        } else {
            // Finish detects the lost rows and deletes nothing; the demo shows the loss. An operator should
            // not accept it while clients write to the source, since nothing stops them there.
            let refusal = split.finish(FINISH_LIMIT).err().ok_or("finish has missed the losses")?;
            self.narrator.say(&format!("refused: {refusal}"));
        }
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
