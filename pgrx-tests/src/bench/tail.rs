//! How fast a backlog of changes is applied, compared with logical replication.

use super::Size;
use super::rig::{LIMIT, Rig, WriteLoad};
use super::stats::{Goal, Measure};
use super::streams::far_away;
use crate::cluster::DATABASE;
use crate::split::Split;
use crate::{Result, wait};
use std::time::Instant;

/// Applies a backlog of distinct changed rows, with the writers stopped.
pub fn backlog(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(1_000_000), 100)?;
    let mut speed = Measure::new("backlog, against logical replication", "rows/s", Goal::AtLeast(250_000.0));
    for _ in 0..size.pairs(3) {
        rig.settle()?;
        let reference = replicated(&rig)?;
        rig.source()?.batch_execute("VACUUM items")?;
        speed.pair(reference, followed(&rig)?);
    }
    let mut far = Measure::new("the same, 10 ms there and back", "rows/s", Goal::AtLeast(100_000.0));
    let _relays = far_away(&rig)?;
    for _ in 0..size.pairs(3) {
        far.single(followed(&rig)?);
    }
    Ok(vec![speed, far])
}

/// Returns rows a second of a split that was paused while all moving rows were changed.
fn followed(rig: &Rig) -> Result<f64> {
    let split = caught_up(rig)?;
    pause(&split)?;
    let changed = change_all(rig)?;
    rig.settle()?;
    let started = Instant::now();
    split.call("resume")?;
    wait_applied(rig, changed)?;
    let seconds = started.elapsed().as_secs_f64();
    rig.take_back(&split)?;
    Ok(changed as f64 / seconds)
}

/// Catches up with the same backlog while four clients continue to write.
pub fn catch_up(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(1_000_000), 100)?;
    let mut time = Measure::new("backlog caught up beside 4 writers", "s", Goal::AtMost(60.0));
    let split = caught_up(&rig)?;
    pause(&split)?;
    let goal = applied(&rig, &split)? + change_all(&rig)?.cast_signed();
    let load = WriteLoad::start(&rig, 4);
    let started = Instant::now();
    split.call("resume")?;
    wait::until("the tail to catch up beside writers", LIMIT, || {
        // Right after the resume the metrics are still those of before the pause.
        if applied(&rig, &split)? < goal {
            return Ok(None);
        }
        let query = "lag_rows < 5000 AND tail_status = 'caught_up'";
        Ok(split.metric::<Option<bool>>(query)?.unwrap_or(false).then_some(()))
    })?;
    time.single(started.elapsed().as_secs_f64());
    load.stop()?;
    rig.take_back(&split)?;
    Ok(vec![time])
}

fn caught_up(rig: &Rig) -> Result<Split<'_>> {
    let split = rig.plan(50)?;
    split.call("start_dual_write")?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    Ok(split)
}

/// Returns the number of changes applied so far.
fn applied(rig: &Rig, split: &Split) -> Result<i64> {
    let query = "SELECT coalesce(sum(changes_applied), 0)::bigint FROM shard_split_tables($1)";
    Ok(rig.cluster.superuser()?.query_one(query, &[&split.id])?.get(0))
}

fn pause(split: &Split) -> Result<()> {
    split.call("pause")?;
    wait::until("the split to pause", LIMIT, || {
        Ok((split.metric::<String>("activity")? == "paused").then_some(()))
    })
}

/// Changes every row that moves, and returns their number.
fn change_all(rig: &Rig) -> Result<u64> {
    Ok(rig.source()?.execute("UPDATE items SET v = v + 1 WHERE tenant_id % 2 = 0", &[])?)
}

/// Waits until the sum over the target shows the last change of every row. A few rows are checked first,
/// because the sum takes processor time from the worker that applies.
fn wait_applied(rig: &Rig, rows: u64) -> Result<()> {
    let (mut source, mut target) = (rig.source()?, rig.target()?);
    let sum = "SELECT coalesce(sum(v), 0)::bigint, count(*) FROM items WHERE tenant_id % 2 = 0";
    let goal: i64 = source.query_one(sum, &[])?.get(0);
    let sample: Vec<i64> = (0..50).map(|n| rig.rows / 100 * 2 * n).filter(|id| id % 100 % 2 == 0).collect();
    let few = "SELECT coalesce(sum(v), 0)::bigint FROM items WHERE id = ANY($1)";
    let goal_of_few: i64 = source.query_one(few, &[&sample])?.get(0);
    wait::until("the backlog to be applied", LIMIT, || {
        if target.query_one(few, &[&sample])?.get::<_, i64>(0) != goal_of_few {
            return Ok(None);
        }
        let row = target.query_one(sum, &[])?;
        let (seen, count): (i64, i64) = (row.get(0), row.get(1));
        Ok((seen == goal && count.cast_unsigned() == rows).then_some(()))
    })
}

/// Returns rows a second of logical replication for the same backlog.
fn replicated(rig: &Rig) -> Result<f64> {
    let (mut source, mut target) = (rig.source()?, rig.target()?);
    rig.copy_pipes(50, 1)?;
    source.batch_execute("CREATE PUBLICATION bench FOR TABLE items")?;
    let place = rig.cluster.servers[0].conninfo(DATABASE, "postgres");
    target.batch_execute(&format!(
        "CREATE SUBSCRIPTION bench CONNECTION '{place}' PUBLICATION bench WITH (copy_data = false, enabled = false)"
    ))?;
    let changed = change_all(rig)?;
    rig.settle()?;
    let started = Instant::now();
    target.batch_execute("ALTER SUBSCRIPTION bench ENABLE")?;
    wait_applied(rig, changed)?;
    let rate = changed as f64 / started.elapsed().as_secs_f64();
    target.batch_execute("ALTER SUBSCRIPTION bench DISABLE")?;
    target.batch_execute("DROP SUBSCRIPTION bench")?;
    source.batch_execute("DROP PUBLICATION bench")?;
    target.batch_execute("TRUNCATE items")?;
    Ok(rate)
}
