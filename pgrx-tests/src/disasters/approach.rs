//! Brings a split to the point at which the disaster is injected.

use super::injections::SplitStage;
use super::operator::Operator;
use super::writers::{MOVING, Writers};
use crate::Result;
use crate::cluster::DATABASE;
use crate::split::Split;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const HELD_UP: Duration = Duration::from_millis(30);

/// Runs the split up to the injection. On the way, the server that is struck gets writes that it may lose.
pub fn to_injection(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    let (point, stage) = (operator.injection.name, operator.injection.stage);
    if stage == SplitStage::Planned {
        take_backup(operator, writers)?;
        operator.plan()?;
        return if operator.injection.is_point() {
            hold_at(operator, point, "start_dual_write($1)")
        } else {
            Ok(())
        };
    }
    operator.plan()?;
    operator.call("start_dual_write($1)")?;
    wait_for(operator, "dual_write")?;
    if stage == SplitStage::Copying {
        take_backup(operator, writers)?;
        operator.site.cluster.hold(point)?;
        operator.call("run_backfill($1)")?;
        return held(operator, point);
    }
    operator.call("run_backfill($1)")?;
    wait_for(operator, "cutover_pending")?;
    take_backup(operator, writers)?;
    match point {
        "tailing" => Ok(()),
        // Clients write all the time, so there is always another step.
        _ if stage == SplitStage::Tailing && point.starts_with("step_") => {
            operator.site.cluster.hold(point)?;
            held(operator, point)
        }
        "recovery_fenced" | "recovery_awaited" | "recovery_caught_up" => recover_to(operator, point),
        "completed" => cut_over(operator, writers),
        "cutover_reopened" => give_up(operator, point),
        _ if point.starts_with("cutover_") => hold_at(operator, point, "cutover($1)"),
        _ if point.starts_with("rollback_") => hold_at(operator, point, "rollback($1)"),
        _ => {
            cut_over(operator, writers)?;
            hold_at(operator, point, "finish($1)")
        }
    }
}

fn take_backup(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    operator.site.take_backup()?;
    writers.wait_for(&[0, 1, 2], 40, LIMIT)
}

fn wait_for(operator: &Operator<'_>, phase: &str) -> Result<()> {
    Split::of(&operator.site.cluster, operator.split).wait(phase, LIMIT).map(drop)
}

fn held(operator: &Operator<'_>, point: &str) -> Result<()> {
    Split::of(&operator.site.cluster, operator.split).wait_held(point, LIMIT)
}

fn hold_at(operator: &mut Operator<'_>, point: &str, call: &str) -> Result<()> {
    operator.site.cluster.hold(point)?;
    operator.call(call)?;
    held(operator, point)?;
    // A worker that was held up for so long does not take its last answers for recent ones.
    std::thread::sleep(HELD_UP);
    Ok(())
}

fn cut_over(operator: &mut Operator<'_>, writers: &Writers) -> Result<()> {
    operator.call("cutover($1)")?;
    wait_for(operator, "completed")?;
    writers.wait_for(&[MOVING], 30, LIMIT)
}

/// The decision waits until its deadline for a transaction on the master.
fn give_up(operator: &mut Operator<'_>, point: &str) -> Result<()> {
    hold_at(operator, "cutover_sequences", "cutover($1)")?;
    let cluster = &operator.site.cluster;
    let mut other = cluster.superuser()?;
    other.batch_execute("BEGIN; SELECT FROM shardmaster.split_plan FOR UPDATE")?;
    cluster.hold(point)?;
    held(operator, point)
}

/// The worker ends after the decision, and the next one is held during the recovery.
fn recover_to(operator: &mut Operator<'_>, point: &str) -> Result<()> {
    hold_at(operator, "cutover_decided", "cutover($1)")?;
    let cluster = &operator.site.cluster;
    let forget = match point {
        "recovery_fenced" => "UPDATE shardmaster_agent.side SET state = 'capture' WHERE side = 'source'",
        // This is the note that tells whose fence it is.
        "recovery_awaited" => "UPDATE shardmaster_agent.consumed SET deciding = NULL",
        _ => "",
    };
    cluster.servers[0].superuser(DATABASE)?.batch_execute(forget)?;
    let mut master = cluster.superuser()?;
    // The next worker cannot get past the target before the new fault is set.
    cluster.servers[1].hang()?;
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    master.batch_execute(end)?;
    let outcome = cluster.hold(point);
    cluster.servers[1].wake()?;
    outcome?;
    held(operator, point)
}
