//! The execution that this session carries out. It lives across the commits of the procedure, and ends with its first
//! error: sessions on shards are closed, so that no transaction stays open there.

use super::error::ExecutionError;
use super::run::Wave;
use crate::catalog::caller::Caller;
use crate::catalog::execution;
use crate::error::Failure;
use crate::server::process::{self, WorkerKind};
use crate::server::session_lock::SessionLock;
use crate::server::{database, wait, wake};
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// The fourth field of the lock's tag, `objsubid` in `pg_locks`; see the worker's locks.
pub const SPACE: u16 = 0x5345;

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One session or worker has an execution at a time.
pub struct Lock(Option<SessionLock>);

impl Lock {
    /// None: another one has it.
    pub fn take(id: i64) -> Option<Lock> {
        SessionLock::take(SPACE, id).map(|lock| Lock(Some(lock)))
    }

    /// For a session. The worker that settles lets go of it after a moment, unless a shard is silent: for that it waits.
    /// Anybody else carries it out, and is not waited for.
    fn take_behind_worker(id: i64, patience: Duration) -> Option<Lock> {
        let began = Instant::now();
        loop {
            let taken = Lock::take(id);
            if taken.is_some() || began.elapsed() > patience || !is_free_or_settled(id) {
                return taken;
            }
            wait::sleep(LOOK_AGAIN);
        }
    }
}

/// Somebody may have let go of it since it was asked for.
fn is_free_or_settled(id: i64) -> bool {
    let Some(holder) = Caller::as_owner(|_| execution::holder(id, SPACE)) else { return true };
    let workers = process::of_database(database::id());
    workers.iter().any(|worker| worker.kind == WorkerKind::Settler && worker.pid == holder)
}

impl Drop for Lock {
    /// Something may be left to the worker, also where an error unwinds through here: it finds it free.
    fn drop(&mut self) {
        drop(self.0.take());
        wake::coordinator();
    }
}

pub struct HeldExecution {
    pub id: i64,
    pub stage: ExecutionStage,
    /// What the next step raises.
    pub failure: Option<Failure>,
    /// What is raised once nothing is left that can be done.
    pub later: Option<Failure>,
    lock: Lock,
    /// Of the last step.
    commits: u64,
}

pub enum ExecutionStage {
    Between,
    /// Written down as running, and nothing was asked.
    Open(Wave),
    /// With the first failure of those that are not to commit.
    Ran(Wave, Option<Failure>),
    /// All have prepared it.
    Prepared(Wave),
    /// It was decided that all commit.
    Decided(Wave),
}

thread_local! {
    static HELD: RefCell<Option<HeldExecution>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl HeldExecution {
    /// No other session may have it.
    pub fn take(id: i64, patience: Duration) -> Result<HeldExecution, Failure> {
        drop(HELD.take());
        if !REGISTERED.replace(true) {
            // SAFETY: the callback is a function of this library, which is never unloaded.
            unsafe {
                pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
                pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
            }
        }
        let lock =
            Lock::take_behind_worker(id, patience).ok_or_else(|| Failure::from(ExecutionError::Busy(id)))?;
        Ok(HeldExecution { id, stage: ExecutionStage::Between, failure: None, later: None, lock, commits: 0 })
    }

    /// Until the next step, or the end of a transaction that fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// What the step before has written down is committed: a shard does nothing of which the master may know nothing.
    pub fn back(id: i64) -> Result<HeldExecution, Failure> {
        let is_it = |held: &HeldExecution| {
            held.id == id
                && held.commits < COMMITS.get()
                && held.lock.0.as_ref().is_some_and(SessionLock::is_kept)
        };
        HELD.take().filter(is_it).ok_or_else(|| ExecutionError::NotHeld(id).into())
    }
}

/// A session that ends between two transactions has none to abort, and later there are neither locks nor what a connection's
/// end needs.
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    drop(HELD.take());
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    if event == pg_sys::XactEvent::XACT_EVENT_ABORT {
        drop(HELD.take());
    } else if event == pg_sys::XactEvent::XACT_EVENT_COMMIT {
        COMMITS.set(COMMITS.get() + 1);
    }
}
