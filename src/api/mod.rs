//! The SQL surface: one file for each noun, thin functions that check, call, return.

pub mod agent;
mod arguments;
pub mod assignment;
pub mod execution;
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
pub mod top;
pub mod topology;
pub mod trusted_owner;
pub mod typed_keys;
pub mod verification;

/// The catalog's schema, which `sql/catalog.sql` makes: for what procedures call as whoever calls them.
#[pgrx::pg_schema]
mod shardmaster {}

use crate::error::{Failure, SqlState};
use pgrx::pg_sys;

/// The first line of every function that writes: one that is called on a standby, in a read-only
/// transaction or by nobody but a table's owner says so by its own name, whatever its arguments.
fn on_primary(function: &str) -> Result<(), Failure> {
    // SAFETY: these read the state of the server and of the transaction.
    let (is_standby, is_read_only, is_restricted) = unsafe {
        (pg_sys::RecoveryInProgress(), pg_sys::XactReadOnly, pg_sys::InSecurityRestrictedOperation())
    };
    let refused = |state, why: &str| Failure::new(state, format!("cannot execute {function}() {why}"));
    match (is_standby, is_read_only, is_restricted) {
        (true, _, _) => Err(refused(SqlState::READ_ONLY, "on a standby").hint("Run it on the primary.")),
        (false, true, _) => Err(refused(SqlState::READ_ONLY, "in a read-only transaction")
            .hint("Call it in a transaction that is READ WRITE.")),
        // Code of an index or of a materialized view, in whatever session or process of the
        // server keeps it: whoever is there has not asked for this.
        (false, false, true) => {
            let why = "within a security-restricted operation";
            Err(refused(SqlState::INSUFFICIENT_PRIVILEGE, why)
                .hint("Call it directly, not in an expression of an index or a materialized view."))
        }
        (false, false, false) => Ok(()),
    }
}

/// Refuses a call where its parts cannot be kept or undone as one, with what helps.
fn outside_transaction(call: &str, hint: &str) -> Result<(), Failure> {
    // SAFETY: reads the state of the transaction.
    if !unsafe { pg_sys::IsTransactionBlock() } {
        return Ok(());
    }
    let text = format!("{call}() cannot run inside a transaction block");
    Err(Failure::new(SqlState::parse("25001"), text).hint(hint))
}

/// A procedure that commits: the server's own words come with the first COMMIT and name none of
/// this.
const COMMITS: &str =
    "Call it without BEGIN. It commits after each step, because a worker sees only what is committed.";

/// What is done on a shard stays when the caller's transaction is rolled back.
const STAYS: &str = "Call it without BEGIN. ROLLBACK would not undo what it does on a shard.";
