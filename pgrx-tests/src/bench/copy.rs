//! How fast rows are copied, how the time grows, and what a copy costs writers.

use super::Size;
use super::rig::{LIMIT, Rig, WriteLoad};
use super::stats::{Goal, Measure};
use crate::Result;
use std::time::{Duration, Instant};

/// Copies half of 100 interleaved tenants, against `COPY | COPY`; measures the worker's memory as well.
pub fn backfill(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(4_000_000), 100)?;
    let mut speed = Measure::new("backfill against COPY | COPY", "rows/s", Goal::RatioAtLeast(0.8));
    let mut memory = Measure::new("worker's peak of RssAnon", "MB", Goal::AtMost(64.0));
    for _ in 0..size.pairs(3) {
        rig.settle()?;
        let reference = rig.copy_pipes(50, 1)?;
        rig.target()?.batch_execute("TRUNCATE items")?;
        rig.settle()?;
        let (rows, seconds, peak) = rig.backfill(50)?;
        speed.pair(reference, rows as f64 / seconds);
        memory.single(peak);
    }
    Ok(vec![speed, memory])
}

/// Eight times the rows may take at most ten times the time.
pub fn growth(size: Size) -> Result<Vec<Measure>> {
    let mut time = Measure::new("time for 8 times the rows", "s", Goal::RatioAtMost(10.0));
    let mut memory = Measure::new("worker's peak of RssAnon, 8 times the rows", "MB", Goal::AtMost(64.0));
    let small = Rig::new(size.rows(1_000_000), 100)?;
    let large = Rig::new(size.rows(8_000_000), 100)?;
    for _ in 0..size.pairs(2) {
        small.settle()?;
        let (_, reference, _) = small.backfill(50)?;
        large.settle()?;
        let (_, ours, peak) = large.backfill(50)?;
        time.pair(reference, ours);
        memory.single(peak);
    }
    Ok(vec![time, memory])
}

/// The throughput that four closed-loop writers keep while the copy runs unthrottled.
pub fn writers(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(4_000_000), 100)?;
    let mut kept = Measure::new("writers during the copy", "tps", Goal::RatioAtLeast(0.6));
    for _ in 0..size.pairs(3) {
        rig.settle()?;
        let load = WriteLoad::start(&rig, 4);
        load.rate_over(Duration::from_secs(1));
        let reference = load.rate_over(Duration::from_secs(4));
        let split = rig.plan(50)?;
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)?;
        split.call("run_backfill")?;
        let (count, started) = (load.count(), Instant::now());
        split.wait("tailing", LIMIT)?;
        let ours = (load.count() - count) as f64 / started.elapsed().as_secs_f64();
        kept.pair(reference, ours);
        load.stop()?;
        rig.take_back(&split)?;
    }
    Ok(vec![kept])
}
