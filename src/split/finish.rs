//! Finish: the moved rows leave the source, the target's guard and the queue go.
//! What stays is the source's guard, which refuses clients with an old route until
//! shard_guard_drop() or until the keys come back. Every part can be repeated, so an
//! interrupted finish begins again from its start.

use super::error::Result;
use super::install;
use super::leaves;
use super::points::{self, reach};
use super::purge;
use super::session::{self, Side};
use crate::agent;
use crate::catalog::split::{self, Plan};
use crate::remote::Connection;
use crate::sql;
use crate::worker::txn::transaction;

pub fn run(plan: &Plan, generation: i64, identity: &str) -> Result<()> {
    reach(points::FINISH_BEGIN)?;
    let mut source = session::open_mover(plan, Side::Source, "finish")?;
    session::check_identity(&mut source, identity)?;
    session::take_over(&mut source, plan, Side::Source, generation)?;
    session::register(&mut source, plan, Side::Source)?;
    let mut target = session::open_mover(plan, Side::Target, "finish")?;
    session::check_identity(&mut target, identity)?;
    leaves::check_source_before_finish(&mut source, &mut target, plan)?;
    let deleted = purge::scope_rows(&mut source, plan, Side::Source, generation, None, points::FINISH_BATCH)?;
    reach(points::FINISH_ROWS)?;
    if session::is_installed(&mut target, plan, Side::Target)? {
        session::take_over(&mut target, plan, Side::Target, generation)?;
        session::register(&mut target, plan, Side::Target)?;
        install::drop_side(&mut target, plan.id, Side::Target)?;
    }
    reach(points::FINISH_UNGUARDED)?;
    drop_queues(&mut source, plan)?;
    reach(points::FINISH_OBJECTS)?;
    transaction(|| record(plan.id, deleted));
    Ok(())
}

/// Under the capture lock, so that no writer is between the number that it has drawn and
/// the queue that it would write to.
fn drop_queues(source: &mut Connection, plan: &Plan) -> Result<()> {
    source.run(&agent::close_queue(plan.id))?;
    reach(points::FINISH_CLOSED)?;
    source.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({})", plan.source_lock))?;
    install::drop_queues(source, plan.id)?;
    source.run("COMMIT")?;
    Ok(())
}

fn record(id: i64, deleted: u64) {
    sql::write(
        "UPDATE shardmaster.split_plan
            SET finished_at = clock_timestamp(), updated_at = clock_timestamp(), activity = 'idle',
                waiting_for = NULL, attempts = 0, worker_pid = NULL
          WHERE id = $1",
        &[id.into()],
    );
    sql::write("UPDATE shardmaster.split_key SET active = false WHERE split_id = $1", &[id.into()]);
    sql::write(
        "UPDATE shardmaster.split_ledger SET removed_at = clock_timestamp() WHERE split_id = $1 AND side = 'target'",
        &[id.into()],
    );
    split::event(id, None, None, &format!("finished: {deleted} rows deleted from the source"));
    split::notify(id, "completed", "finished");
}
