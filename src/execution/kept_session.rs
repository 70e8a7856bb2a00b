//! The execution that this session carries out. It lives across the commits of the procedure, and ends with its first
//! error: its sessions on shards are closed, so that no transaction stays open there.

use crate::catalog::caller::Caller;
use crate::catalog::execution;
use crate::error::Failure;
use crate::execution::error;
use crate::execution::run::Wave;
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

/// The lock of an execution: one session or worker has it at a time.
pub struct Lock(Option<SessionLock>);

impl Lock {
    /// Returns None if another session or worker has it.
    pub fn take(id: i64) -> Option<Lock> {
        SessionLock::take(SPACE, id).map(|lock| Lock(Some(lock)))
    }

    /// Takes the lock for a session. The worker that settles executions releases it shortly, unless a shard is silent,
    /// so this waits for the worker. Any other holder carries the execution out, and is not waited for.
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

/// Whether nobody has the lock, or the settling worker has it. The lock may have been released since it was requested.
fn is_free_or_settled(id: i64) -> bool {
    let Some(holder) = Caller::as_owner(|_| execution::holder(id, SPACE)) else { return true };
    let workers = process::of_database(database::id());
    workers.iter().any(|worker| worker.kind == WorkerKind::TwoPhaseRecovery && worker.pid == holder)
}

impl Drop for Lock {
    /// Releases the lock and then wakes the worker, which may have something to settle, also if an error unwinds
    /// through here: it finds the lock free.
    fn drop(&mut self) {
        drop(self.0.take());
        wake::coordinator();
    }
}

pub struct HeldExecution {
    pub id: i64,
    pub stage: ExecutionStage,
    /// The error that the next step raises.
    pub failure: Option<Failure>,
    /// The error that is raised once nothing more can be done.
    pub later: Option<Failure>,
    lock: Lock,
    /// How many transactions had committed when the last step ended.
    commits: u64,
}

pub enum ExecutionStage {
    Between,
    /// The shards are recorded as running, and nothing was sent to them.
    Open(Wave),
    /// The statement has run; the failure is the first of the shards that are not to commit.
    Ran(Wave, Option<Failure>),
    /// All shards have prepared it.
    Prepared(Wave),
    /// It is decided that all shards commit.
    Decided(Wave),
}

thread_local! {
    static HELD: RefCell<Option<HeldExecution>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl HeldExecution {
    /// Takes the execution for this session; it fails if another session has it.
    pub fn take(id: i64, patience: Duration) -> Result<HeldExecution, Failure> {
        drop(HELD.take());
        if !REGISTERED.replace(true) {
            // SAFETY: the callback is a function of this library, which is never unloaded.
            unsafe {
                pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
                pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
            }
        }
        let lock = Lock::take_behind_worker(id, patience).ok_or_else(|| error::busy(id))?;
        Ok(HeldExecution { id, stage: ExecutionStage::Between, failure: None, later: None, lock, commits: 0 })
    }

    /// Keeps the execution until the next step, or until a transaction fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// Returns the kept execution, if the records of the step before are committed: a shard never does anything of
    /// which the master may have no record.
    pub fn back(id: i64) -> Result<HeldExecution, Failure> {
        let is_it = |held: &HeldExecution| {
            held.id == id
                && held.commits < COMMITS.get()
                && held.lock.0.as_ref().is_some_and(SessionLock::is_kept)
        };
        HELD.take().filter(is_it).ok_or_else(|| error::not_held(id))
    }
}

/// A session that ends between two transactions has none to abort; later than this, the locks and what is needed to
/// close a connection no longer exist.
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
