//! How long writers wait when tenants change servers.

use super::Size;
use super::stats::{Goal, Measure, at};
use crate::Result;
use crate::cluster::Cluster;
use crate::split::Split;
use crate::workload::{Ack, Options, Workload};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// The time before and after a cutover in which writes are measured.
const WINDOW: Duration = Duration::from_secs(2);

/// The longest time in which no write of a moving tenant completes, with 4 writers, and the 99th percentile
/// of the tenants that stay.
pub fn cutover(size: Size) -> Result<Vec<Measure>> {
    let cluster = Cluster::servers(2, &[])?;
    let mut workload = Workload::prepare(&cluster, Options { rows: 20_000, ..Options::default() })?;
    let moving: Vec<String> = workload.options().moving_names().into_iter().map(str::to_owned).collect();
    let moving: Vec<&str> = moving.iter().map(String::as_str).collect();
    workload.start();
    workload.wait_for(1_000, LIMIT)?;
    let started = workload.started().unwrap_or_else(Instant::now);
    let mut moments = Vec::new();
    for run in 0..size.pairs(10) {
        let (source, target) = if run % 2 == 0 { ("shard_a", "shard_b") } else { ("shard_b", "shard_a") };
        let split = Split::plan(&cluster, source, target, &moving)?;
        split.call("start_dual_write")?;
        split.call("run_backfill")?;
        split.wait("cutover_pending", LIMIT)?;
        std::thread::sleep(WINDOW); // the cutover is compared with these writes
        moments.push(started.elapsed());
        split.call("cutover")?;
        split.wait("completed", LIMIT)?;
        std::thread::sleep(WINDOW); // the writes after it
        split.finish(LIMIT)?;
        println!("  cutover {}: fence {:?} ms", run + 1, split.metric::<Option<f64>>("fence_ms::float8")?);
    }
    workload.stop()?;
    let report = workload.report(&cluster)?;
    if !report.is_clean() {
        return Err(format!("the cutovers were not clean:\n{report}").into());
    }
    Ok(measures(&workload.acks(), &moments))
}

fn measures(acks: &[Ack], moments: &[Duration]) -> Vec<Measure> {
    let mut gap = Measure::new("longest time without a moving tenant's write", "ms", Goal::AtMost(20.0));
    let mut tail = Measure::new("p99 of staying tenants at the cutover", "ms", Goal::RatioAtMost(1.5));
    for &moment in moments {
        let before = moment.saturating_sub(WINDOW)..moment;
        let after = moment..moment + WINDOW;
        gap.pair(longest_gap(acks, &before), longest_gap(acks, &after));
        tail.pair(p99_staying(acks, &before), p99_staying(acks, &after));
    }
    vec![gap, tail]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn longest_gap(acks: &[Ack], within: &std::ops::Range<Duration>) -> f64 {
    let times = acks.iter().filter(|ack| ack.moving && within.contains(&ack.at)).map(|ack| ack.at);
    let mut last = within.start;
    let mut longest = Duration::ZERO;
    for at in times.chain([within.end]) {
        longest = longest.max(at - last);
        last = at;
    }
    millis(longest)
}

fn p99_staying(acks: &[Ack], within: &std::ops::Range<Duration>) -> f64 {
    let staying = acks.iter().filter(|ack| !ack.moving && within.contains(&ack.at));
    let mut times: Vec<f64> = staying.map(|ack| millis(ack.took)).collect();
    times.sort_by(f64::total_cmp);
    at(&times, 0.99)
}
