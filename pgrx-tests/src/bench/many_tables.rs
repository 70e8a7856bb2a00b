//! What very many tables cost, step by step.

use super::Size;
use super::distance::{ONE, Shape, prepared, write};
use super::rig::LIMIT;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::DATABASE;
use crate::relayed_cluster::RelayedCluster;
use crate::split::Split;
use postgres::Client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MANY: Shape = Shape { tables: 500, busy: 5 };

/// All steps of a split of so many tables may take this many seconds together.
const ALL_STEPS: f64 = 0.1 * MANY.tables as f64;

/// For very many tables: the target's lag, the cost of asking for it, and the time of each step that an
/// operator waits for.
pub fn many(size: Size) -> Result<Vec<Measure>> {
    let (one, many) = (prepared(ONE.tables)?, prepared(MANY.tables)?);
    let (tables, busy) = (MANY.tables, MANY.busy);
    let mut lag = Measure::new(
        format!("lag of {tables} tables, {busy} written to, beside one"),
        "ms",
        Goal::AtMost(1000.0),
    );
    let mut asked = Measure::new("shard_split_metrics of them", "ms", Goal::RatioAtMost(1.2));
    let (of_one, of_many) = (follow(&one, ONE.busy, size)?, follow(&many, busy, size)?);
    for (reference, ours) in of_one.samples.into_iter().zip(of_many.samples) {
        lag.pair(reference.0, ours.0);
        asked.pair(reference.1, ours.1);
    }
    let mut idle = Measure::new(
        format!("processor of the busier side, a step that finds nothing: {tables} tables"),
        "ms",
        Goal::AtMost(20.0),
    );
    idle.pair(of_one.idle, of_many.idle);
    let mut measures = vec![lag, asked, idle];
    let mut all = Measure::new(format!("all steps of {tables} tables"), "s", Goal::AtMost(ALL_STEPS));
    all.single(of_many.steps.iter().map(|(_, seconds)| seconds).sum());
    for ((name, reference), (_, ours)) in of_one.steps.into_iter().zip(of_many.steps) {
        let mut step = Measure::new(format!("{name}: {tables} tables"), "s", Goal::AtMost(ALL_STEPS));
        step.pair(reference, ours);
        measures.push(step);
    }
    measures.push(all);
    Ok(measures)
}

/// The measurements of a split while it followed its source, and the times of its steps.
struct SplitCosts {
    /// The lag, and the time that it took to ask for it, both in milliseconds.
    samples: Vec<(f64, f64)>,
    /// Processor time of the busier side, in milliseconds, for a step that finds no changes.
    idle: f64,
    /// The times of the steps, in seconds.
    steps: Vec<(&'static str, f64)>,
}

/// The wall-clock times of the steps of a split.
struct Steps(Vec<(&'static str, f64)>);

impl Steps {
    fn take<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let outcome = step()?;
        self.0.push((name, began.elapsed().as_secs_f64()));
        Ok(outcome)
    }
}

/// Runs one split and rolls it back, then another one and finishes it.
fn follow(stage: &RelayedCluster, busy: usize, size: Size) -> Result<SplitCosts> {
    let cluster = &stage.cluster;
    let [from, to] = [0, 1].map(|number| cluster.shards[number].key.as_str());
    let mut steps = Steps(Vec::new());
    let split = steps.take("planning", || Split::plan(cluster, from, to, &["moves"]))?;
    steps.take("check", || split.findings())?;
    install(&mut steps, &split)?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    let idle = idle(stage, size)?;
    let samples = ask(stage, &split, busy, size)?;
    steps.take("rollback", || {
        split.call("rollback")?;
        split.wait("rolled_back", LIMIT)
    })?;
    let split = Split::plan(cluster, from, to, &["moves"])?;
    split.call("start_dual_write")?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    split.call("cutover")?;
    split.wait("completed", LIMIT)?;
    steps.take("finish", || split.finish(LIMIT))?;
    steps.take("the redirect's end", || split.drop_guard())?;
    Ok(SplitCosts { samples, idle, steps: steps.0 })
}

/// Measures a time in which the sessions of a split do nothing but steps.
fn idle(stage: &RelayedCluster, size: Size) -> Result<f64> {
    let mut sides =
        [stage.cluster.servers[0].superuser(DATABASE)?, stage.cluster.servers[1].superuser(DATABASE)?];
    stage.source.listen();
    let before = [spent(&mut sides[0])?, spent(&mut sides[1])?];
    let _ = stage.source.heard();
    std::thread::sleep(Duration::from_secs(size.seconds(10)));
    let heard = stage.source.heard();
    let steps = heard.iter().filter(|heard| heard.text.contains("ISOLATION LEVEL REPEATABLE READ")).count();
    let after = [spent(&mut sides[0])?, spent(&mut sides[1])?];
    let most = (after[0] - before[0]).max(after[1] - before[1]);
    Ok(most / steps.max(1) as f64)
}

/// Returns the processor time of the sessions of splits on a server, in milliseconds.
fn spent(client: &mut Client) -> Result<f64> {
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split %'";
    let mut all = 0.0;
    for row in client.query(query, &[])? {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", row.get::<_, i32>(0)))?;
        let nanoseconds: u64 = text.split(' ').next().ok_or("an empty schedstat")?.parse()?;
        all += nanoseconds as f64 / 1e6;
    }
    Ok(all)
}

fn install(steps: &mut Steps, split: &Split<'_>) -> Result<()> {
    steps.take("installation, with its check", || {
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)
    })?;
    Ok(())
}

/// Asks while a writer changes the busy tables.
fn ask(stage: &RelayedCluster, split: &Split<'_>, busy: usize, size: Size) -> Result<Vec<(f64, f64)>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(stage, 0, busy, &stop));
        let samples = (0..size.pairs(10) * 5).map(|_| {
            std::thread::sleep(Duration::from_millis(200));
            let began = Instant::now();
            let lag: f64 = split.metric("coalesce(extract(epoch FROM lag), 3600)::float8")?;
            Ok((lag * 1000.0, began.elapsed().as_secs_f64() * 1000.0))
        });
        let samples: Result<Vec<(f64, f64)>> = samples.collect();
        stop.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer has panicked")??;
        samples
    })
}
