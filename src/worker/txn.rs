//! A transaction of a background worker on the master: short, and never open while
//! the network is waited for.

use pgrx::bgworkers::BackgroundWorker;
use std::panic::AssertUnwindSafe;

/// Runs the body in a transaction of its own and commits. An error of the server
/// unwinds through here and ends the worker, which is restarted and resumes.
pub fn transaction<R>(body: impl FnOnce() -> R) -> R {
    BackgroundWorker::transaction(AssertUnwindSafe(body))
}
