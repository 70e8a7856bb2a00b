//! What this session moves or deletes. It lives across the commits of the procedure, and ends with its first error: sessions
//! on shards are closed, so that no transaction stays open there.

use super::error::MisplacedError;
use super::run::MoveWork;
use crate::error::Failure;
use crate::server::session_lock::SessionLock;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// The fourth field of the lock's tag. Another one than the worker's locks and those of executions have.
const SPACE: u16 = 0x5352;

/// No other session may have it: as long as somebody does, the run is carried out.
pub fn lock(id: i64) -> Result<SessionLock, Failure> {
    SessionLock::take(SPACE, id).ok_or_else(|| MisplacedError::Held(id).into())
}

pub struct HeldMove {
    pub id: i64,
    pub work: MoveWork,
    /// What the next step raises, once it is known why.
    pub failure: Option<Failure>,
    /// Of the last step.
    commits: u64,
    lock: SessionLock,
}

thread_local! {
    static HELD: RefCell<Option<HeldMove>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl HeldMove {
    /// For this session alone, from now on: before anybody sees the run.
    pub fn begin(id: i64, work: MoveWork) -> Result<(), Failure> {
        drop(HELD.take());
        if !REGISTERED.replace(true) {
            // SAFETY: the callback is a function of this library, which is never unloaded.
            unsafe {
                pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
                pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
            }
        }
        let lock = lock(id)?;
        HeldMove { id, work, failure: None, commits: 0, lock }.keep();
        Ok(())
    }

    /// Until the next step, or the end of a transaction that fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// What the step before has written down is committed: a shard does nothing of which the master may know nothing.
    pub fn back(id: i64) -> Result<HeldMove, Failure> {
        let is_it = |held: &HeldMove| held.id == id && held.commits < COMMITS.get() && held.lock.is_kept();
        HELD.take().filter(is_it).ok_or_else(|| MisplacedError::NotHeld(id).into())
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
