//! Waiting until shards have what was committed on the origin of their reference tables.

use crate::catalog::keyspace;
use crate::catalog::reference::{self, CopyBehind};
use crate::error::{Failure, SqlState};
use crate::server::{sql, wait as latch};
use std::time::{Duration, Instant};

/// How long a failed state is not trusted: its cause may have been repaired, and the reference-table worker tries
/// again and reports that within this time if it is quick.
const MENDED: Duration = Duration::from_secs(3);

/// Returns once everything committed by now is on all active shards of the keyspace.
pub fn wait(keyspace: &str, limit: Duration) -> Result<(), Failure> {
    keyspace::find(keyspace)?;
    let Some(now) = reference::now() else { return Ok(()) };
    let (began, deadline) = (Instant::now(), Instant::now() + limit);
    loop {
        let Some(behind) = reference::behind(keyspace, now) else { return Ok(()) };
        let has_failed = behind.state == "failed" && began.elapsed() >= MENDED;
        if has_failed || Instant::now() >= deadline {
            return Err(failed(behind));
        }
        if sql::keeps_its_snapshot() {
            let text = "a transaction above READ COMMITTED cannot see the progress of shards";
            let hint = "Wait in a transaction of isolation level READ COMMITTED.";
            return Err(Failure::new(SqlState::SERIALIZATION_FAILURE, text).hint(hint));
        }
        latch::sleep(Duration::from_millis(50));
    }
}

fn failed(behind: CopyBehind) -> Failure {
    let CopyBehind { shard, state, failure } = behind;
    let (why, hint) = failure.map_or((String::new(), None), |(why, hint)| (format!(": {why}"), hint));
    let sqlstate = if state == "failed" { SqlState::NOT_IN_STATE } else { SqlState::TIMEOUT };
    let text = format!("shard \"{shard}\" has not caught up with its reference tables, {state}{why}");
    let look = "SELECT * FROM shard_reference_tables() shows the state of each shard, and shard_status() that of the worker.".to_owned();
    Failure::new(sqlstate, text).hint(hint.unwrap_or(look))
}
