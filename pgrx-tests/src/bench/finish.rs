//! How fast finish deletes rows after proving that the target has them, with two streams beside one.

use super::Size;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::Result;
use crate::split::Split;
use crate::wait;
use std::time::Instant;

/// Tenants of each split, out of 100.
const MOVING: i64 = 10;

/// Finishes a tenth of the tenants with one stream, and another tenth with two. Nobody writes.
pub fn finish(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(4_000_000), 100)?;
    let mut speed = Measure::new("finish by two streams beside one", "rows/s", Goal::RatioAtLeast(1.25));
    for pair in 0..i64::try_from(size.pairs(3))? {
        let one = finished(&rig, 2 * pair, 1)?;
        speed.pair(one, finished(&rig, 2 * pair + 1, 2)?);
    }
    Ok(vec![speed])
}

/// Returns rows a second for the tenants of one split.
fn finished(rig: &Rig, number: i64, streams: usize) -> Result<f64> {
    let keys: Vec<String> =
        (MOVING * number..MOVING * (number + 1)).map(|tenant| tenant.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let split = Split::plan(&rig.cluster, "shard_a", "shard_b", &keys)?;
    split.run(|_| ())?;
    // Finish compares rows first, and that is not measured: a verification has done it.
    split.call("verify")?;
    let rows = wait::until("the verification", LIMIT, || {
        let told = "SELECT sum(rows_compared)::bigint FROM shard_split_verification($1) HAVING bool_and(status = 'passed')";
        Ok(split.superuser()?.query_opt(told, &[&split.id])?.map(|row| row.get::<_, i64>(0)))
    })?;
    rig.cluster.set("shardmaster.copy_streams", &streams.to_string())?;
    rig.settle()?;
    let began = Instant::now();
    split.finish(LIMIT)?;
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}
