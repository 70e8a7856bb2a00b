//! What this session carries out over several transactions: a procedure commits between two steps of it. It ends with
//! the first error: its sessions on shards are closed, so that no transaction stays open there.

use pgrx::prelude::*;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// A run, which holds a lock that no other session may have. A session has at most one run of each kind.
pub trait HeldRun: 'static {
    fn id(&self) -> i64;
    /// Whether the lock is still held: its own session may have released all its locks.
    fn is_locked(&self) -> bool;
}

struct KeptRun {
    run: Box<dyn Any>,
    /// How many transactions had committed when it was kept.
    commits: u64,
}

thread_local! {
    static KEPT: RefCell<Vec<KeptRun>> = const { RefCell::new(Vec::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// How many transactions of this session have committed.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

/// Ends the run of this kind that the session has kept, before another one takes its lock.
pub fn end<R: HeldRun>() {
    if !REGISTERED.replace(true) {
        // SAFETY: the callbacks are functions of this library, which is never unloaded.
        unsafe {
            pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
            pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
    drop(take::<R>());
}

/// Keeps a run until its next step, or until a transaction fails.
pub fn keep<R: HeldRun>(run: R) {
    end::<R>();
    let kept = KeptRun { run: Box::new(run), commits: COMMITS.get() };
    KEPT.with_borrow_mut(|all| all.push(kept));
}

/// Returns the kept run, if the records of the step before are committed: a shard does nothing of which the master may
/// have no record.
pub fn back<R: HeldRun>(id: i64) -> Option<R> {
    let (run, commits) = take::<R>()?;
    (run.id() == id && commits < COMMITS.get() && run.is_locked()).then_some(run)
}

fn take<R: HeldRun>() -> Option<(R, u64)> {
    let kept = KEPT.with_borrow_mut(|all| {
        let position = all.iter().position(|kept| kept.run.is::<R>())?;
        Some(all.remove(position))
    })?;
    Some((*kept.run.downcast::<R>().ok()?, kept.commits))
}

/// Ends the runs at the session's exit. A session that ends between two transactions has none to abort; later than
/// this, the locks and what is needed to close a connection no longer exist.
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    drop(KEPT.take());
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    if event == pg_sys::XactEvent::XACT_EVENT_ABORT {
        drop(KEPT.take());
    } else if event == pg_sys::XactEvent::XACT_EVENT_COMMIT {
        COMMITS.set(COMMITS.get() + 1);
    }
}
