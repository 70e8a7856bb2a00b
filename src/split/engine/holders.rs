//! The holders of the lock on the barrier that every capturing transaction has.

use crate::agent::blocking_session::SESSION;
use crate::agent::error::Result;
use crate::agent::state::queue;
use crate::remote::Connection;

/// A transaction that holds the capture lock.
pub struct LockHolder {
    /// Its virtual transaction id, or that of a prepared one.
    pub id: String,
    /// Its pid or name, and since when it is open, for people.
    pub text: String,
    /// It is open for longer than a fence is tried for.
    pub old: bool,
}

/// Returns the query; $1 is the barrier.
fn holders_query() -> String {
    format!(
        "
    SELECT l.virtualtransaction,
           CASE WHEN p.gid IS NOT NULL THEN format('prepared transaction %L', p.gid) ELSE {SESSION} END
             || coalesce(', open for ' || round(extract(epoch FROM
                  clock_timestamp() - coalesce(p.prepared, a.xact_start))) || ' s', ''),
           l.pid IS NULL OR coalesce(clock_timestamp() - a.xact_start > interval '1 s', false)
      FROM pg_locks l
      LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      -- A prepared transaction keeps the virtual transaction of the session that made
      -- it, without its pid; its xid is locked under the same.
      LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
                          AND x.virtualtransaction = l.virtualtransaction
      LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
     WHERE l.locktype = 'relation' AND l.granted AND l.relation = to_regclass($1)
       AND l.mode <> 'AccessShareLock'
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.pid IS DISTINCT FROM pg_backend_pid()"
    )
}

/// Returns the transactions that hold the capture lock of the source now.
pub fn holders(control: &mut Connection, split: i64) -> Result<Vec<LockHolder>> {
    let rows = control.query(&holders_query(), &[Some(&queue::barrier(split))])?;
    Ok(rows
        .rows
        .into_iter()
        .map(|row| {
            let mut cells = row.into_iter().map(Option::unwrap_or_default);
            LockHolder {
                id: cells.next().unwrap_or_default(),
                text: cells.next().unwrap_or_default(),
                old: cells.next().as_deref() == Some("t"),
            }
        })
        .collect())
}
