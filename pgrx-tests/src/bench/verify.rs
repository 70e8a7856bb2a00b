//! How fast a verification compares the rows of a split, compared with an SQL query over the same rows of the
//! slower side, and with two streams compared with one.

use super::Size;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::split::Split;
use crate::{Result, wait};
use std::time::Instant;

/// Half of the tenants are copied and compared. Nobody writes.
pub fn verify(size: Size) -> Result<Vec<Measure>> {
    const MOVING: i64 = 50;
    let rig = Rig::new(size.rows(4_000_000), 2 * MOVING)?;
    let mut speed = Measure::new("verification against a sum of hashes", "rows/s", Goal::RatioAtLeast(0.5));
    let split = rig.plan(MOVING)?;
    split.call("start_dual_write")?;
    split.wait("dual_write", LIMIT)?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    rig.target()?.batch_execute("VACUUM (ANALYZE, FREEZE) items")?;
    let mut streams =
        Measure::new("verification by two streams beside one", "rows/s", Goal::RatioAtLeast(1.25));
    for _ in 0..size.pairs(5) {
        rig.settle()?;
        let reference = sum_of_hashes(&rig, 0)?.min(sum_of_hashes(&rig, 1)?);
        let one = compared(&rig, &split, 1)?;
        speed.pair(reference, one);
        streams.pair(one, compared(&rig, &split, 2)?);
    }
    Ok(vec![speed, streams])
}

/// Returns rows of the split a second.
fn compared(rig: &Rig, split: &Split<'_>, streams: usize) -> Result<f64> {
    rig.cluster.set("shardmaster.copy_streams", &streams.to_string())?;
    rig.settle()?;
    let began = Instant::now();
    split.call("verify")?;
    let rows = wait::until("the verification", LIMIT, || {
        let told = "SELECT sum(rows_compared)::bigint FROM shard_split_verification($1) HAVING bool_and(status = 'passed')";
        Ok(rig.cluster.superuser()?.query_opt(told, &[&split.id])?.map(|row| row.get::<_, i64>(0)))
    })?;
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}

/// Returns rows of the split a second.
fn sum_of_hashes(rig: &Rig, server: usize) -> Result<f64> {
    let mut session = if server == 0 { rig.source()? } else { rig.target()? };
    session.batch_execute("SET max_parallel_workers_per_gather = 0")?;
    let began = Instant::now();
    let query = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM items t WHERE tenant_id % 2 = 0";
    let rows: i64 = session.query_one(query, &[])?.get(0);
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}
