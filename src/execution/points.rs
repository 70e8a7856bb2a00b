//! The injection points of a statement in two phases, where a session or the worker can be held, fail or die.

use crate::error::Failure;
use crate::server::injection::{self, Point, points};
use pgrx::pg_sys;

points! {
    "execution":
    RUNNING = "execution_running", "the sessions and the names of prepared transactions are recorded, no shard has been asked";
    RAN = "execution_ran", "the statement has run on all shards, nothing is prepared";
    ASKED = "execution_asked", "all shards have prepared it, the master does not know";
    PREPARED = "execution_prepared", "all have prepared it, which is recorded; nothing is decided";
    DECIDED = "execution_decided", "the decision is recorded, no shard knows it";
    COMMITTED = "execution_committed", "the shards have committed, the master does not know";
    SETTLING = "execution_settling", "the outcome is known, no shard has been told to end it";
    SETTLED = "execution_settled", "the shards have ended it, the master does not know";
}

/// Works in a session's transaction, and between the transactions of a worker.
pub fn reach(point: &'static Point) -> Result<(), Failure> {
    // SAFETY: this reads the state of the transaction.
    match unsafe { pg_sys::IsTransactionState() } {
        true => injection::reach_in_session(point)?,
        false => injection::reach(point)?,
    }
    Ok(())
}
