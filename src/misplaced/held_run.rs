//! The run of this session. It lives across the commits of the procedure, and ends with its first error: its sessions
//! on shards are closed, so that no transaction stays open there.

use crate::error::Failure;
use crate::misplaced::error;
use crate::misplaced::run::MoveWork;
use crate::server::session_lock::SessionLock;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// The fourth field of the lock's tag. It differs from those of the worker's locks and of executions.
const SPACE: u16 = 0x5352;

/// Takes the lock of a run, which no other session may have: while it is held, the run is carried out.
pub fn lock(id: i64) -> Result<SessionLock, Failure> {
    SessionLock::take(SPACE, id).ok_or_else(|| error::held_elsewhere(id))
}

pub struct HeldMove {
    pub id: i64,
    pub work: MoveWork,
    /// The error that the next step raises, once its cause is known.
    pub failure: Option<Failure>,
    /// The number of commits at the last step.
    commits: u64,
    lock: SessionLock,
}

thread_local! {
    static HELD: RefCell<Option<HeldMove>> = const { RefCell::new(None) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// The number of transactions of this session that have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

impl HeldMove {
    /// Begins a run for this session, before others see it.
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

    /// Keeps the run until the next step, or the end of a transaction that fails.
    pub fn keep(mut self) {
        self.commits = COMMITS.get();
        HELD.set(Some(self));
    }

    /// Returns the run once the records of the step before are committed: a shard does nothing that the master may not
    /// know of.
    pub fn back(id: i64) -> Result<HeldMove, Failure> {
        let is_it = |held: &HeldMove| held.id == id && held.commits < COMMITS.get() && held.lock.is_kept();
        HELD.take().filter(is_it).ok_or_else(|| error::not_held(id))
    }
}

/// Ends the run at the session's exit. A session that ends between two transactions has none to abort, and later there
/// are neither locks nor what closing a connection needs.
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
