//! A transaction of a background worker on the master: short, and never open while
//! the network is waited for.

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys;
use std::panic::AssertUnwindSafe;

/// Runs the body in a transaction of its own and commits. An error of the server
/// unwinds through here and ends the worker, which is restarted and resumes.
pub fn transaction<R>(body: impl FnOnce() -> R) -> R {
    let result = BackgroundWorker::transaction(AssertUnwindSafe(body));
    // Nobody else does this for a background worker, and without the figures autovacuum
    // would never look at the plan, which a worker updates all the time.
    // SAFETY: no transaction is open. At most once a second the figures are sent.
    unsafe { pg_sys::pgstat_report_stat(false) };
    result
}
