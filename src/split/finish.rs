//! Finish: the moved rows leave the source, the target's guard and the queue go.
//! What stays is the source's guard, which refuses clients with an old route until
//! shard_guard_drop() or until the keys come back.

use super::engine::Engine;
use super::error::Result;
use super::install;
use super::points::{self, reach};
use super::purge;
use super::session::Side;
use crate::catalog::split;
use crate::sql;
use crate::worker::txn::transaction;

pub fn run(engine: &mut Engine) -> Result<()> {
    reach(points::FINISH_BEGIN)?;
    let id = engine.plan.id;
    let deleted = purge::scope_rows(
        &mut engine.control,
        &engine.plan,
        Side::Source,
        engine.generation,
        points::FINISH_BATCH,
    )?;
    reach(points::FINISH_ROWS)?;
    install::drop_side(&mut engine.target, id, Side::Target)?;
    engine.control.run("BEGIN")?;
    install::drop_queues(&mut engine.control, id)?;
    engine.control.run("COMMIT")?;
    reach(points::FINISH_OBJECTS)?;
    transaction(|| record(id, deleted));
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
