//! Strong locks on tables that clients write to: they are waited for only briefly.

use super::error::{Result, SplitError};
use crate::agent::blocking_session::{OPEN_FOR, SESSION};
use crate::guc;
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError, Together};
use crate::server::retry::{self, Attempt, Backoff};
use std::time::{Duration, Instant};

/// The lock that statements need on a table and its partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableLock {
    AccessShare,
    ShareRowExclusive,
    AccessExclusive,
}

impl TableLock {
    /// Returns the modes of others that block it, among those that tables are locked in.
    fn waits_for(self) -> &'static str {
        match self {
            TableLock::AccessShare => "l.mode = 'AccessExclusiveLock'",
            TableLock::ShareRowExclusive => {
                "l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',
                            'ExclusiveLock', 'AccessExclusiveLock')"
            }
            TableLock::AccessExclusive => "true",
        }
    }
}

/// Runs statements that need a strong lock on a table and its partitions, in one transaction, without making writers
/// queue behind it for longer than a moment: 100 ms for each lock, 300 ms for all of them. The statements run only
/// after all locks are held.
pub fn with_short_lock(
    connection: &mut Connection,
    lock: TableLock,
    statements: &str,
    table: &str,
) -> Result<()> {
    attempts(connection, lock, statements, table, guc::remote_timeout())
}

/// Runs such statements in one attempt, for a caller that has other work to do.
pub fn with_short_lock_once(
    connection: &mut Connection,
    lock: TableLock,
    statements: &str,
    table: &str,
) -> Result<()> {
    attempts(connection, lock, statements, table, Duration::ZERO)
}

/// Statements that need a strong lock on a table.
pub struct OnTable {
    /// The name, qualified and quoted.
    pub table: String,
    pub statements: String,
}

/// The greatest number of tables of one message, whose result arrives only after all of them.
const MOST_TABLES: usize = 32;

/// Runs statements for many tables: several in one message, each in a transaction of its own, so that a writer waits
/// for one of them and not for all, and no lock is held over a round trip. `alone` retries a table whose lock cannot
/// be had at once; the others continue after it. `done` is called after each message.
pub fn with_short_locks(
    connection: &mut Connection,
    lock: TableLock,
    all: &[OnTable],
    mut alone: impl FnMut(&mut Connection, &OnTable) -> Result<()>,
    mut done: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut together = Together::up_to(MOST_TABLES);
    let mut left = all;
    while !left.is_empty() {
        let (now, behind) = left.split_at(together.begin().min(left.len()));
        left = behind;
        let transactions: Vec<String> = now
            .iter()
            .enumerate()
            .map(|(number, on)| {
                // The last commit of a message is flushed, and with it everything written before it.
                let durable =
                    if number + 1 < now.len() { "SET LOCAL synchronous_commit = off; " } else { "" };
                transaction(lock, &on.table, &format!("{durable}{}", on.statements))
            })
            .collect();
        if let Err((committed, error)) = connection.run_transactions(&transactions) {
            connection.run("ROLLBACK")?;
            let Some((failed, rest)) = now.get(committed..).and_then(<[_]>::split_first) else {
                return Err(error.into());
            };
            alone(connection, failed)?;
            left = &all[all.len() - left.len() - rest.len()..];
        }
        together.end();
        done()?;
    }
    Ok(())
}

fn transaction(lock: TableLock, table: &str, statements: &str) -> String {
    let mode = match lock {
        TableLock::AccessShare => "ACCESS SHARE",
        TableLock::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
        TableLock::AccessExclusive => "ACCESS EXCLUSIVE",
    };
    format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '300ms';
         LOCK TABLE {table} IN {mode} MODE; SET LOCAL statement_timeout = 0; {statements}; COMMIT"
    )
}

fn attempts(
    connection: &mut Connection,
    lock: TableLock,
    statements: &str,
    table: &str,
    longest: Duration,
) -> Result<()> {
    let transaction = transaction(lock, table, statements);
    again(longest, || match connection.run(&transaction) {
        Ok(_) => Ok(Attempt::Done(())),
        Err(error) => {
            connection.run("ROLLBACK")?;
            if !error.is_lock_timeout() && !error.is("57014") {
                return Err(error.into());
            }
            Ok(Attempt::Waits(blockers(connection, lock, &[table.to_owned()], &error)?))
        }
    })
}

/// Makes attempts to get a lock for this long, and finally reports what the last one has waited for.
pub fn again<T>(longest: Duration, attempt: impl FnMut() -> Result<Attempt<T>>) -> Result<T> {
    const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    retry::until(Instant::now() + longest, PAUSES, attempt)?.map_err(SplitError::Retry)
}

/// Returns the sessions that a lock on tables waits for.
pub fn blockers(
    connection: &mut Connection,
    lock: TableLock,
    tables: &[String],
    error: &RemoteError,
) -> Result<String> {
    let query = format!(
        "SELECT string_agg(DISTINCT {SESSION} || {OPEN_FOR}, '; '), string_agg(DISTINCT l.relation::regclass::text, ', ')
           FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.relation IN (SELECT to_regclass(t) FROM unnest($1::text[]) t
                               UNION ALL SELECT p.relid FROM unnest($1::text[]) t, pg_partition_tree(to_regclass(t)) p)
            AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND {}",
        lock.waits_for()
    );
    let answer = connection.query(&query, &[Some(&text_array(tables))])?;
    let mut cells = answer.rows.into_iter().next().unwrap_or_default().into_iter();
    let mut cell = || cells.next().flatten();
    let blockers = cell().unwrap_or_else(|| "another transaction".to_owned());
    let table = match tables {
        [table] => table.clone(),
        tables => cell().unwrap_or_else(|| format!("one of {} tables", tables.len())),
    };
    Ok(format!("lock on {table} of shard \"{}\", held by {blockers}", error.shard))
}
