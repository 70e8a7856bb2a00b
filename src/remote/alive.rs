//! Sessions whose server ends a transaction that nothing comes for. A worker that is frozen, or
//! whose link is gone, keeps nobody waiting on a shard for longer; one that works, on the other
//! side say, asks such a session for nothing every now and then while it waits, which is a sign
//! of life.

use pq_sys as pq;
use std::cell::RefCell;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A session that is kept.
struct Kept {
    raw: NonNull<pq::PGconn>,
    /// Its last sign of life; none is given more often than `every`.
    last: Instant,
    every: Duration,
    /// It has been asked for nothing, and has not answered yet.
    is_asked: bool,
}

thread_local! {
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// From now on, as often as that.
pub(super) fn keep(raw: NonNull<pq::PGconn>, every: Duration) {
    forget(raw);
    KEPT.with_borrow_mut(|all| all.push(Kept { raw, last: Instant::now(), every, is_asked: false }));
}

/// Its server ends it where nothing comes. Not in the middle of an answer.
pub(super) fn forget(raw: NonNull<pq::PGconn>) {
    KEPT.with_borrow_mut(|all| all.retain(|kept| kept.raw != raw));
}

/// Gives a sign of life in all sessions whose transaction is idle for long. What is being waited
/// for is not idle.
pub(super) fn sign() {
    KEPT.with_borrow_mut(|all| {
        for kept in all.iter_mut().filter(|kept| kept.last.elapsed() >= kept.every || kept.is_asked) {
            // SAFETY: a live connection: it is forgotten before it is closed. No function here
            // blocks, and PQgetResult is called only when it does not.
            unsafe {
                let raw = kept.raw.as_ptr();
                if kept.is_asked {
                    kept.is_asked = !is_answered(raw);
                } else if pq::PQtransactionStatus(raw) == pq::PGTransactionStatusType::PQTRANS_INTRANS {
                    // No statement: it takes no snapshot and no lock.
                    kept.is_asked = pq::PQsendQuery(raw, c"".as_ptr()) == 1;
                    pq::PQflush(raw);
                }
                kept.last = Instant::now();
            }
        }
    });
}

/// Whether an answer to nothing is still to come, which is to be taken before anything is asked.
pub(super) fn is_asked(raw: NonNull<pq::PGconn>) -> bool {
    KEPT.with_borrow_mut(|all| {
        let Some(kept) = all.iter_mut().find(|kept| kept.raw == raw && kept.is_asked) else { return false };
        // SAFETY: as above.
        kept.is_asked = !unsafe { is_answered(raw.as_ptr()) };
        kept.is_asked
    })
}

/// # Safety
/// A live connection that has been asked for nothing.
unsafe fn is_answered(raw: *mut pq::PGconn) -> bool {
    // SAFETY: as the caller promises. A session that has ended has nothing more to say; its next
    // statement tells.
    unsafe {
        pq::PQflush(raw);
        if pq::PQconsumeInput(raw) == 0 {
            return true;
        }
        while pq::PQisBusy(raw) == 0 {
            let result = pq::PQgetResult(raw);
            if result.is_null() {
                return true;
            }
            pq::PQclear(result);
        }
        false
    }
}
