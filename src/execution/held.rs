//! The execution that this session carries out. It lives across the commits of the procedure, and ends with its first
//! error: sessions on shards are closed, so that no transaction stays open there.

use super::error::ExecutionError;
use super::run::Wave;
use crate::error::Failure;
use crate::server::{database, wake};
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// The fourth field of the lock's tag, `objsubid` in `pg_locks`; see the worker's locks.
pub const SPACE: u16 = 0x5345;

/// One session or worker has an execution at a time.
pub struct Lock(i64);

impl Lock {
    /// None: another one has it.
    pub fn take(id: i64) -> Option<Lock> {
        acquire(id).map(|_| Lock(id))
    }

    /// Its own session may have given it away, with all that it has.
    fn is_kept(&self) -> bool {
        let again = acquire(self.0);
        if again.is_some() {
            release(self.0);
        }
        again == Some(pg_sys::LockAcquireResult::LOCKACQUIRE_ALREADY_HELD)
    }
}

impl Drop for Lock {
    /// Something may be left to the worker, also where an error unwinds through here.
    fn drop(&mut self) {
        release(self.0);
        wake::coordinator();
    }
}

fn acquire(id: i64) -> Option<pg_sys::LockAcquireResult::Type> {
    let tag = database::advisory_lock(SPACE, id as u64);
    // SAFETY: a valid tag of a lock method the server knows; does not wait. The session's own: it outlives commits.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
    (taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL).then_some(taken)
}

fn release(id: i64) {
    let tag = database::advisory_lock(SPACE, id as u64);
    // SAFETY: releases what `acquire` has taken in this session; raises no error.
    unsafe { pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as i32, true) };
}

pub struct Held {
    pub id: i64,
    pub stage: Stage,
    /// What the next step raises.
    pub failure: Option<Failure>,
    /// What is raised once nothing is left that can be done.
    pub later: Option<Failure>,
    lock: Lock,
    /// Of the last step.
    commits: u64,
}

pub enum Stage {
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
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl Held {
    /// No other session may have it.
    pub fn take(id: i64) -> Result<Held, Failure> {
        drop(HELD.take());
        if !REGISTERED.replace(true) {
            // SAFETY: the callback is a function of this library, which is never unloaded.
            unsafe {
                pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
                pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
            }
        }
        let lock = Lock::take(id).ok_or_else(|| Failure::from(ExecutionError::Busy(id)))?;
        Ok(Held { id, stage: Stage::Between, failure: None, later: None, lock, commits: 0 })
    }

    /// Until the next step, or the end of a transaction that fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// What the step before has written down is committed: a shard does nothing of which the master may know nothing.
    pub fn back(id: i64) -> Result<Held, Failure> {
        let is_it = |held: &Held| held.id == id && held.commits < COMMITS.get() && held.lock.is_kept();
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
