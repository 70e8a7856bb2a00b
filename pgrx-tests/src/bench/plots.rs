//! Pictures for the documentation of how costs grow. Each point is the median of some rounds.

use super::Size;
use super::distance;
use super::plot::{Line, Plot};
use super::rig::Rig;
use super::routing;
use super::stats::{Measure, quartiles};
use super::streams;
use crate::{Result, env};
use std::time::Duration;

const ROUNDS: usize = 3;

type Make = fn(Size) -> Result<Plot>;

/// Writes the pictures. None of the measures has a goal.
pub fn plots(size: Size) -> Result<Vec<Measure>> {
    // The servers' user may not be able to write to the checkout, so the script copies the pictures there.
    let folder = env::run_dir()?.join("plots");
    std::fs::create_dir_all(&folder)?;
    let made: [(&str, Make); 5] =
        [("rows", rows), ("streams", by_streams), ("tables", tables), ("delay", delay), ("tenants", tenants)];
    // SHARDMASTER_PLOT=delay draws that picture alone.
    let wanted = std::env::var("SHARDMASTER_PLOT").ok();
    for (name, make) in made.into_iter().filter(|(name, _)| wanted.as_deref().is_none_or(|one| one == *name))
    {
        std::fs::write(folder.join(format!("{name}.svg")), make(size)?.svg())?;
    }
    Ok(Vec::new())
}

fn median(size: Size, mut once: impl FnMut() -> Result<f64>) -> Result<f64> {
    let values = (0..size.pairs(ROUNDS)).map(|_| once()).collect::<Result<Vec<f64>>>()?;
    Ok(quartiles(&values)[1])
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    for (x, y) in &points {
        println!("  {name}: {x} -> {y:.1}");
    }
    Line { name: name.to_owned(), points }
}

/// The time of a copy.
fn rows(size: Size) -> Result<Plot> {
    let (mut ours, mut pipe) = (vec![(0.0, 0.0)], vec![(0.0, 0.0)]);
    for millions in [1, 2, 4, 8] {
        let rig = Rig::new(size.rows(millions * 1_000_000), 100)?;
        let moved = rig.rows as f64 / 2.0;
        let seconds = median(size, || {
            rig.settle()?;
            Ok(rig.backfill(50)?.1)
        })?;
        ours.push((moved, seconds));
        let rate = median(size, || {
            rig.settle()?;
            let rate = rig.copy_pipes(50, 1)?;
            rig.target()?.batch_execute("TRUNCATE items")?;
            Ok(rate)
        })?;
        pipe.push((moved, moved / rate));
    }
    let lines = vec![line("split", ours), line("COPY | COPY", pipe)];
    Ok(Plot { title: "Copy of half of a table's tenants".to_owned(), x: "rows", y: "s", lines })
}

/// Rows a second, depending on the number of streams.
fn by_streams(size: Size) -> Result<Plot> {
    let rig = Rig::new(size.rows(4_000_000), 100)?;
    let series = |rig: &Rig, name: &str| -> Result<Line> {
        let mut points = Vec::new();
        for count in 1..=4_u32 {
            points.push((f64::from(count), median(size, || streams::copied(rig, count as usize))?));
        }
        Ok(line(name, points))
    };
    let near = series(&rig, "one machine")?;
    let _relays = streams::far_away(&rig)?;
    let lines = vec![near, series(&rig, "10 ms away")?];
    Ok(Plot { title: "Copy by streams, 2 cores for all".to_owned(), x: "streams", y: "rows/s", lines })
}

/// Returns the milliseconds of a fence.
fn fence(size: Size, tables: usize, busy: usize, delay: Duration) -> Result<f64> {
    let stage = distance::prepared(tables)?;
    for relay in [&stage.source, &stage.target] {
        relay.delay(delay);
    }
    let mut way = [0, 1];
    median(size, || {
        let took = distance::split(&stage, way, busy)?;
        way.reverse();
        Ok(took.fence)
    })
}

fn tables(size: Size) -> Result<Plot> {
    let series = |name: &str, busy: fn(usize) -> usize| -> Result<Line> {
        let mut points = Vec::new();
        for count in [1, 10, 40, 100, 150] {
            points.push((count as f64, fence(size, count, busy(count), Duration::ZERO)?));
        }
        Ok(line(name, points))
    };
    let lines = vec![
        series("5 written to", |count| count.min(5))?,
        series("70 % written to", |count| (count * 7).div_ceil(10))?,
    ];
    Ok(Plot { title: "Fence by tables, no delay".to_owned(), x: "tables", y: "ms", lines })
}

fn delay(size: Size) -> Result<Plot> {
    let series = |name: &str, tables: usize| -> Result<Line> {
        let mut points = Vec::new();
        for round_trip in [0, 10, 20, 40, 80] {
            let ms = fence(size, tables, tables.min(5), Duration::from_millis(round_trip / 2))?;
            points.push((round_trip as f64, ms));
        }
        Ok(line(name, points))
    };
    let lines = vec![series("1 table", 1)?, series("40 tables", 40)?];
    Ok(Plot { title: "Fence by distance".to_owned(), x: "ms there and back", y: "ms", lines })
}

/// The processor time of a route in microseconds.
fn tenants(size: Size) -> Result<Plot> {
    let mut points = Vec::new();
    for tenants in [10_000, 100_000, 300_000, 1_000_000] {
        points.push((tenants as f64, median(size, || routing::of_unknown(size.rows(tenants)))?));
    }
    let lines = vec![line("not known", points)];
    Ok(Plot {
        title: "shard_of of a key that the session does not know".to_owned(),
        x: "tenants",
        y: "µs",
        lines,
    })
}
