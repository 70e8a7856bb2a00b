//! What more streams gain for a copy, and where the processor is the limit.

use super::Size;
use super::rig::Rig;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::{DATABASE, MOVER};
use crate::relay::Relay;
use std::time::Duration;

/// Copies half of 100 interleaved tenants with one stream and with more, on one machine and over a line.
pub fn streams(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(4_000_000), 100)?;
    let mut near = Measure::new("two streams beside one", "rows/s", Goal::RatioAtLeast(1.25));
    let mut far =
        Measure::new("four streams beside one, 10 ms there and back", "rows/s", Goal::RatioAtLeast(3.0));
    let pair = |measure: &mut Measure, streams: usize| -> Result<()> {
        let reference = copied(&rig, 1)?;
        measure.pair(reference, copied(&rig, streams)?);
        Ok(())
    };
    // Two plain pipes show how much the machine leaves for a second stream.
    let mut pipes = Measure::new("two pipes of COPY beside one", "rows/s", Goal::RatioAtLeast(1.0));
    let piped = |pipes: i64| -> Result<f64> {
        rig.settle()?;
        let rate = rig.copy_pipes(50, pipes)?;
        rig.target()?.batch_execute("TRUNCATE items")?;
        Ok(rate)
    };
    for _ in 0..size.pairs(3) {
        pipes.pair(piped(1)?, piped(2)?);
        pair(&mut near, 2)?;
    }
    let _relays = far_away(&rig)?;
    for _ in 0..size.pairs(3) {
        pair(&mut far, 4)?;
    }
    Ok(vec![pipes, near, far])
}

/// Delays each answer of a shard by 10 ms from now on.
pub(super) fn far_away(rig: &Rig) -> Result<[Relay; 2]> {
    let relays = [Relay::before(&rig.cluster.servers[0])?, Relay::before(&rig.cluster.servers[1])?];
    let mut master = rig.cluster.superuser()?;
    for (key, relay) in ["shard_a", "shard_b"].iter().zip(&relays) {
        let place = "UPDATE shardmaster.shard SET conninfo = $2 WHERE shard_key = $1";
        master.execute(place, &[key, &relay.conninfo(DATABASE, MOVER)])?;
        relay.delay(Duration::from_millis(5));
    }
    Ok(relays)
}

/// Returns rows a second, and prints how busy the processors were.
pub(super) fn copied(rig: &Rig, streams: usize) -> Result<f64> {
    rig.cluster.set("shardmaster.copy_streams", &streams.to_string())?;
    rig.settle()?;
    let before = processors()?;
    let (rows, seconds, _) = rig.backfill(50)?;
    let spent: Vec<f64> = processors()?.iter().zip(before).map(|(now, then)| now - then).collect();
    let all: f64 = spent.iter().sum();
    let part = |jiffies: f64| 100.0 * jiffies / all.max(1.0);
    println!(
        "  {streams} streams, with their beginning and end: {:.0} % of all processors busy, {:.0} % idle beside a disk",
        part(all - spent[IDLE] - spent[WAITING]),
        part(spent[WAITING])
    );
    Ok(rows as f64 / seconds)
}

/// Columns of a processor's line in /proc/stat.
const IDLE: usize = 3;
const WAITING: usize = 4;

/// Returns the ticks of all processors since the machine started: user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn processors() -> Result<[f64; 8]> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let mut spent = [0.0; 8];
    let first = text.lines().next().unwrap_or_default();
    for (sum, word) in spent.iter_mut().zip(first.split_whitespace().skip(1)) {
        *sum = word.parse().unwrap_or(0.0);
    }
    Ok(spent)
}
