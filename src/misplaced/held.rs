//! What this session moves or deletes. It lives across the commits of the procedure, and ends with its first error: sessions
//! on shards are closed, so that no transaction stays open there.

use super::error::MisplacedError;
use super::run::Work;
use crate::error::Failure;
use crate::server::database;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// The fourth field of the lock's tag; see the worker's locks.
const SPACE: u16 = 0x534d;

/// As long as somebody has it, the run is carried out.
pub struct Lock(i64);

pub struct Held {
    pub id: i64,
    pub work: Work,
    /// What the next step raises, once it is known why.
    pub failure: Option<Failure>,
    /// Of the last step.
    commits: u64,
    _lock: Lock,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl Lock {
    /// No other session may have it.
    pub fn take(id: i64) -> Result<Lock, Failure> {
        let tag = database::advisory_lock(SPACE, id as u64);
        // SAFETY: a valid tag of a lock method the server knows; does not wait. The session's own: it outlives commits.
        let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
        match taken {
            pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => Err(MisplacedError::Held(id).into()),
            _ => Ok(Lock(id)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let tag = database::advisory_lock(SPACE, self.0 as u64);
        // SAFETY: releases what `take` has taken in this session; raises no error.
        unsafe { pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as i32, true) };
    }
}

impl Held {
    /// For this session alone, from now on: before anybody sees the run.
    pub fn begin(id: i64, work: Work) -> Result<(), Failure> {
        drop(HELD.take());
        if !REGISTERED.replace(true) {
            // SAFETY: the callback is a function of this library, which is never unloaded.
            unsafe { pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut()) };
        }
        let lock = Lock::take(id)?;
        Held { id, work, failure: None, commits: 0, _lock: lock }.keep();
        Ok(())
    }

    /// Until the next step, or the end of a transaction that fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// What the step before has written down is committed: a shard does nothing of which the master may know nothing.
    pub fn back(id: i64) -> Result<Held, Failure> {
        let is_it = |held: &Held| held.id == id && held.commits < COMMITS.get();
        HELD.take().filter(is_it).ok_or_else(|| MisplacedError::NotHeld(id).into())
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    if event == pg_sys::XactEvent::XACT_EVENT_ABORT {
        drop(HELD.take());
    } else if event == pg_sys::XactEvent::XACT_EVENT_COMMIT {
        COMMITS.set(COMMITS.get() + 1);
    }
}
