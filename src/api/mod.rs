//! The SQL surface: one file for each noun, with thin functions that check, call and return.

pub mod agent;
mod arguments;
pub mod assignment;
mod derive;
mod execution;
pub mod gateway;
pub mod guard;
pub mod hash;
pub mod history;
pub mod import;
mod json_text;
pub mod keychain;
pub mod keyspace;
pub mod lookup;
pub mod misplaced;
pub mod misplaced_settle;
pub mod own_tables;
pub mod page;
pub mod placement;
pub mod query;
pub mod reference;
mod regtype;
pub mod report;
pub mod routing;
mod row;
mod rows;
pub mod schema;
pub mod sequence;
pub mod snowflake;
pub mod split;
pub mod split_check;
pub mod split_diagnose;
pub mod spread;
pub mod status;
pub mod survey;
pub mod top;
pub mod topology;
pub mod trusted_owner;
pub mod typed_keys;
pub mod verification;

/// The catalog's schema, which `sql/catalog.sql` creates: for functions that procedures call as their caller.
#[pgrx::pg_schema]
mod shardmaster {}

use crate::error::{self, Failure, SqlState};
use pgrx::pg_sys;

/// Is called first by every function that writes: on a standby, in a read-only transaction or in a security-restricted
/// operation, the function then fails with its own name in the message, whatever its arguments are.
fn on_primary(function: &str) -> Result<(), Failure> {
    // SAFETY: this reads the state of the server and of the transaction.
    let (is_standby, is_read_only, is_restricted) = unsafe {
        (pg_sys::RecoveryInProgress(), pg_sys::XactReadOnly, pg_sys::InSecurityRestrictedOperation())
    };
    match (is_standby, is_read_only, is_restricted) {
        (true, _, _) => Err(error::on_standby(function)),
        (false, true, _) => {
            let text = format!("cannot execute {function}() in a read-only transaction");
            Err(Failure::new(SqlState::READ_ONLY, text).hint("Call it in a transaction that is READ WRITE."))
        }
        (false, false, true) => Err(error::restricted(function)),
        (false, false, false) => Ok(()),
    }
}

/// Refuses a call in a transaction block, where its parts cannot be committed or undone as one, with a hint.
fn outside_transaction(call: &str, hint: &str) -> Result<(), Failure> {
    // SAFETY: this reads the state of the transaction.
    if !unsafe { pg_sys::IsTransactionBlock() } {
        return Ok(());
    }
    let text = format!("{call}() cannot run inside a transaction block");
    Err(Failure::new(SqlState::parse("25001"), text).hint(hint))
}

/// The hint for a procedure that commits: the server's own error comes only with the first COMMIT and explains nothing
/// of this.
const COMMITS: &str =
    "Call it without BEGIN. It commits after each step, because a worker sees only what is committed.";

/// The hint for a call whose changes on a shard remain when the caller's transaction is rolled back.
const STAYS: &str = "Call it without BEGIN. ROLLBACK would not undo what it does on a shard.";
