//! A transaction of a background worker on the master: short, and never open while the network is waited for, except
//! for one answer of a shard during which the state must not change (`ending`).

use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use std::panic::AssertUnwindSafe;

/// Runs the body in a transaction of its own and commits. An error of the server unwinds through here and ends the
/// worker, which is restarted and resumes.
pub fn transaction<R>(body: impl FnOnce() -> R) -> R {
    let result = BackgroundWorker::transaction(AssertUnwindSafe(body));
    // Nothing else does this for a background worker, and without the statistics autovacuum would never process the
    // plan, which a worker updates all the time.
    // SAFETY: no transaction is open. The statistics are sent at most once a second.
    unsafe { pg_sys::pgstat_report_stat(false) };
    result
}

/// Runs the body in the open transaction, for example a session's, or else in one of its own.
pub fn in_one<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: this reads the state of the transaction.
    if unsafe { pg_sys::IsTransactionState() } { body() } else { transaction(body) }
}

/// Works like `transaction`, but an `Err` of the body undoes what it has done.
pub fn try_transaction<R, E>(body: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    // SAFETY: this is a background worker between transactions; the snapshot is popped before the commit, and an abort
    // drops it. An error of the server unwinds past here to the worker's end, which aborts.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let result = body();
        if result.is_ok() {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
        result
    }
}

/// Works like `try_transaction`, but returns None if a lock was not granted within the `lock_timeout` that the body
/// has set; then nothing is done.
pub fn unless_locked<R, E>(body: impl FnOnce() -> Result<R, E>) -> Option<Result<R, E>> {
    // SAFETY: the transaction is open that was begun there.
    unless_locked_with(body, || unsafe { pg_sys::CommitTransactionCommand() })
}

/// Works like `unless_locked` with the caller's own commit.
pub fn unless_locked_with<R, E>(
    body: impl FnOnce() -> Result<R, E>,
    commit: impl FnOnce(),
) -> Option<Result<R, E>> {
    // SAFETY: see `try_transaction`; the error that is caught here leaves a transaction that is aborted next.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let mut body = Some(body);
        let result = PgTryBuilder::new(AssertUnwindSafe(|| body.take().map(|body| body())))
            .catch_when(PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE, |_| None)
            .execute();
        if matches!(result, Some(Ok(_))) {
            pg_sys::PopActiveSnapshot();
            commit();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
        result
    }
}

/// How long `within` waits for a lock.
#[derive(Clone, Copy)]
pub struct LockTimeout(&'static str);

pub const SOON: LockTimeout = LockTimeout("SET LOCAL lock_timeout = '200ms'");
/// The limit for one of many attempts.
pub const AT_ONCE: LockTimeout = LockTimeout("SET LOCAL lock_timeout = '20ms'");

/// Works like `try_transaction`, but returns None if another session holds a lock that the body needs; then nothing is
/// done.
pub fn with_lock_timeout<R, E>(body: impl FnOnce() -> Result<R, E>) -> Option<Result<R, E>> {
    within(SOON, body)
}

/// Works like `with_lock_timeout` with another limit.
pub fn within<R, E>(longest: LockTimeout, body: impl FnOnce() -> Result<R, E>) -> Option<Result<R, E>> {
    unless_locked(|| {
        crate::server::sql::write(longest.0, &[]);
        body()
    })
}
