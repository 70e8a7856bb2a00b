//! The SQL surface: one file for each noun, thin functions that check, call, return.

pub mod agent;
pub mod assignment;
pub mod gateway;
pub mod hash;
pub mod history;
pub mod keyspace;
pub mod placement;
mod regtype;
pub mod routing;
pub mod snowflake;
pub mod split;
pub mod split_check;
pub mod status;
pub mod topology;
pub mod trusted_owner;
pub mod verification;

use crate::error::{Failure, SqlState};
use pgrx::pg_sys;

/// The first line of every function that writes: one that is called on a standby, or in a
/// read-only transaction, says so by its own name, whatever its arguments.
fn on_primary(function: &str) -> Result<(), Failure> {
    // SAFETY: both read the state of the server and of the transaction.
    let (is_standby, is_read_only) = unsafe { (pg_sys::RecoveryInProgress(), pg_sys::XactReadOnly) };
    let refused = |why: &str| Failure::new(SqlState::READ_ONLY, format!("cannot execute {function}() {why}"));
    match (is_standby, is_read_only) {
        (true, _) => Err(refused("on a standby").hint("Run it on the primary.")),
        (false, true) => Err(refused("in a read-only transaction")),
        (false, false) => Ok(()),
    }
}

/// Refuses a procedure that commits where it cannot, with what helps; the server's own words
/// come with the first COMMIT and name none of that.
fn outside_transaction(procedure: &str) -> Result<(), Failure> {
    // SAFETY: reads the state of the transaction.
    if !unsafe { pg_sys::IsTransactionBlock() } {
        return Ok(());
    }
    Err(Failure::new(
        SqlState::parse("25001"),
        format!("{procedure}() cannot run inside a transaction block"),
    )
    .hint("Call it without BEGIN: it commits after each step, since a worker sees nothing before."))
}
