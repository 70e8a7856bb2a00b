//! The costs of a shard without the extension, which hashes in PL/pgSQL: for the copy, which asks for rows by
//! their keys there, and for writers whose buckets stay.

use super::Size;
use super::capture::{Script, Session};
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::Result;

const BUCKETS: i32 = 16;
const TENANTS: i64 = 10_000;

/// Copies every second bucket, against `COPY | COPY` of as many rows.
pub fn buckets(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::of_buckets(size.rows(1_000_000), TENANTS, BUCKETS)?;
    let mut agent = Measure::new("copy of buckets, no extension", "rows/s", Goal::RatioAtLeast(0.8));
    let mut source = Measure::new("the same, the extension on the source", "rows/s", Goal::RatioAtLeast(0.8));
    let mut both = Measure::new("the same, the extension on both", "rows/s", Goal::RatioAtLeast(0.8));
    for _ in 0..size.pairs(3) {
        let places = [(&mut agent, [false, false]), (&mut source, [true, false]), (&mut both, [true, true])];
        for (measure, installed) in places {
            rig.install(installed)?;
            rig.settle()?;
            let reference = rig.copy_pipes(TENANTS / 2, 1)?;
            rig.target()?.batch_execute("TRUNCATE items")?;
            rig.settle()?;
            let (rows, seconds, _) = rig.backfill(TENANTS / 2)?;
            measure.pair(reference, rows as f64 / seconds);
        }
    }
    rig.install([false, false])?;
    let mut measures = vec![agent, source, both];
    measures.extend(stay(&rig, size)?);
    Ok(measures)
}

/// Single-row updates of tenants whose buckets stay, while the other half moves.
fn stay(rig: &Rig, size: Size) -> Result<[Measure; 2]> {
    let staying = Script::new("staying buckets", &format!("2 * random(0, {TENANTS} / 2 - 1) + 1"), TENANTS)?;
    let tenant = format!("2 * floor(random() * {TENANTS} / 2)::bigint + 1");
    let mut session = Session::new(rig, &tenant, TENANTS, "off", size)?;
    let mut rate = Measure::new("staying buckets, half of them moving", "tps", Goal::RatioAtLeast(0.75));
    let mut cost = Measure::new("the same, fast commits", "µs", Goal::MoreByAtMost(2.0));
    let seconds = size.seconds(4);
    for _ in 0..size.pairs(5) {
        rig.source()?.batch_execute("VACUUM items")?;
        rig.settle()?;
        let reference = (staying.run(rig, seconds)?, session.cost()?);
        let split = rig.plan(TENANTS / 2)?;
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)?;
        rate.pair(reference.0, staying.run(rig, seconds)?);
        cost.pair(reference.1, session.cost()?);
        rig.take_back(&split)?;
    }
    Ok([rate, cost])
}
