//! What very many tables cost, step by step.

use super::Size;
use super::distance::{ONE, Shape, prepared, write};
use super::rig::LIMIT;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::split::Split;
use crate::stage::Stage;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MANY: Shape = Shape { tables: 500, busy: 5 };

/// Seconds that all steps of so many tables may take together.
const ALL_STEPS: f64 = 0.1 * MANY.tables as f64;

/// How far a target of very many tables is behind, what it costs to ask that, and how long each step takes for which
/// an operator waits.
pub fn many(size: Size) -> Result<Vec<Measure>> {
    let (one, many) = (prepared(ONE.tables)?, prepared(MANY.tables)?);
    let (tables, busy) = (MANY.tables, MANY.busy);
    let mut lag = Measure::new(
        format!("lag of {tables} tables, {busy} written to, beside one"),
        "ms",
        Goal::AtMost(1000.0),
    );
    let mut asked = Measure::new("shard_split_metrics of them", "ms", Goal::RatioAtMost(3.0));
    let (of_one, of_many) = (follow(&one, ONE.busy, size)?, follow(&many, busy, size)?);
    for (reference, ours) in of_one.samples.into_iter().zip(of_many.samples) {
        lag.pair(reference.0, ours.0);
        asked.pair(reference.1, ours.1);
    }
    let mut measures = vec![lag, asked];
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

/// What a split was asked while it followed its source, and how long its steps took.
struct Followed {
    /// The lag, and how long it took to ask it, in milliseconds.
    samples: Vec<(f64, f64)>,
    /// In seconds.
    steps: Vec<(&'static str, f64)>,
}

/// Steps of a split, by the clock.
struct Steps(Vec<(&'static str, f64)>);

impl Steps {
    fn take<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let outcome = step()?;
        self.0.push((name, began.elapsed().as_secs_f64()));
        Ok(outcome)
    }
}

/// One split that is rolled back, and one that is finished.
fn follow(stage: &Stage, busy: usize, size: Size) -> Result<Followed> {
    let cluster = &stage.cluster;
    let [from, to] = [0, 1].map(|number| cluster.shards[number].key.as_str());
    let mut steps = Steps(Vec::new());
    let split = steps.take("planning", || Split::plan(cluster, from, to, &["moves"]))?;
    steps.take("check", || split.findings())?;
    install(&mut steps, &split)?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
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
    Ok(Followed { samples, steps: steps.0 })
}

fn install(steps: &mut Steps, split: &Split<'_>) -> Result<()> {
    steps.take("installation, with its check", || {
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)
    })?;
    Ok(())
}

/// While a writer changes its busy tables.
fn ask(stage: &Stage, split: &Split<'_>, busy: usize, size: Size) -> Result<Vec<(f64, f64)>> {
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
