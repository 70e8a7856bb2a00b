//! What a cutover writes on the master while writers wait for it.

use crate::agent::blocking_session::{OPEN_FOR, SESSION};
use crate::agent::error::{Result, SplitError};
use crate::server::sql;
use crate::server::standby::{self, Standby};
use crate::server::txn::transaction;
use crate::split::aborted;
use std::time::Instant;

/// Runs a transaction on the master, which waits for no other session past the deadline.
pub fn by<R>(deadline: Instant, body: impl FnOnce() -> Result<R>) -> Result<(R, Standby)> {
    standby::by(deadline, body).unwrap_or_else(|| {
        let holders = transaction(holders);
        Err(SplitError::Aborted(aborted::because(&format!(
            "a lock on the master, held perhaps by {holders}"
        ))))
    })
}

/// Describes sessions with open transactions that have locked rows a decision changes.
pub fn holders() -> String {
    let query = format!(
        "SELECT string_agg(DISTINCT {SESSION} || {OPEN_FOR}, '; ')
           FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
           JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = 'shardmaster'::regnamespace
          WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND l.mode <> 'AccessShareLock' AND l.granted AND a.pid <> pg_backend_pid()"
    );
    sql::read_one(&query, &[], |row| row.get::<String>(1))
        .flatten()
        .unwrap_or_else(|| "a transaction that has ended meanwhile".to_owned())
}
