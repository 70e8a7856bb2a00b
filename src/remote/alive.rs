//! Sessions whose server ends a transaction that receives nothing. A frozen worker, or one whose connection is gone,
//! thus keeps its locks on a shard only for that time. A worker that is busy, for example on the other side, sends
//! such a session empty queries now and then while it waits, as signs of life.

use super::flood;
use pq_sys as pq;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The greatest number of bytes of an answer to an empty query: it may include a few settings that the server reports
/// anew.
pub(super) const MOST: usize = 8 << 10;

/// A session that is kept alive, or whose last sign of life is not answered.
struct KeptSession {
    raw: NonNull<pq::PGconn>,
    /// The time of its last sign of life, and the least interval between two, or none if it is not kept alive.
    last: Instant,
    every: Option<Duration>,
    sign: Sign,
}

/// The state of a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sign {
    /// None was sent, or its answer was received.
    Answered,
    /// This many bytes of the answer have arrived.
    Asked(usize),
    /// What has arrived is no answer to an empty query: no more of it is read.
    Wrong,
}

thread_local! {
    static KEPT: RefCell<Vec<KeptSession>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a session alive from now on, at this interval.
pub(super) fn keep(raw: NonNull<pq::PGconn>, every: Duration) {
    KEPT.with_borrow_mut(|all| match all.iter_mut().find(|kept| kept.raw == raw) {
        Some(kept) => (kept.last, kept.every) = (Instant::now(), Some(every)),
        None => all.push(KeptSession { raw, last: Instant::now(), every: Some(every), sign: Sign::Answered }),
    });
}

/// Stops keeping a session alive: its server ends its transaction if nothing comes. An outstanding answer is received
/// all the same.
pub(super) fn forget(raw: NonNull<pq::PGconn>) {
    KEPT.with_borrow_mut(|all| {
        all.iter_mut().filter(|kept| kept.raw == raw).for_each(|kept| kept.every = None);
        all.retain(|kept| kept.every.is_some() || kept.sign != Sign::Answered);
    });
}

/// Removes a session that is about to be closed.
pub(super) fn remove(raw: NonNull<pq::PGconn>) {
    KEPT.with_borrow_mut(|all| all.retain(|kept| kept.raw != raw));
}

/// Sends a sign of life in all sessions whose transaction is idle for long. A session that is being waited for is not
/// idle.
pub(super) fn sign() {
    KEPT.with_borrow_mut(|all| {
        for kept in all.iter_mut() {
            match (kept.sign, kept.every) {
                (Sign::Asked(_), _) => kept.take(),
                (Sign::Answered, Some(every)) if kept.last.elapsed() >= every => kept.ask(),
                (Sign::Answered | Sign::Wrong, _) => {}
            }
        }
    });
}

/// Receives what has arrived of an answer to an empty query. It must be complete before anything is asked.
pub(super) fn answer(raw: NonNull<pq::PGconn>) -> Sign {
    KEPT.with_borrow_mut(|all| {
        let Some(kept) = all.iter_mut().find(|kept| kept.raw == raw) else { return Sign::Answered };
        if matches!(kept.sign, Sign::Asked(_)) {
            kept.take();
        }
        kept.sign
    })
}

impl KeptSession {
    fn ask(&mut self) {
        self.last = Instant::now();
        let raw = self.raw.as_ptr();
        // SAFETY: the connection is live: it is removed before it is closed. No function here blocks.
        unsafe {
            if pq::PQtransactionStatus(raw) != pq::PGTransactionStatusType::PQTRANS_INTRANS {
                return;
            }
            // An empty query takes no snapshot and no lock.
            if pq::PQsendQuery(raw, c"".as_ptr()) == 1 {
                self.sign = Sign::Asked(0);
            }
            pq::PQflush(raw);
        }
    }

    /// Receives the answer to an empty query.
    fn take(&mut self) {
        self.last = Instant::now();
        let Sign::Asked(before) = self.sign else { return };
        // SAFETY: as above.
        let come = before + unsafe { arrived(pq::PQsocket(self.raw.as_ptr())) };
        self.sign = match come {
            too_much if too_much > MOST => Sign::Wrong,
            // SAFETY: as above.
            some => match unsafe { take_in(self.raw.as_ptr()) } {
                TakenAnswer::All => Sign::Answered,
                TakenAnswer::Some => Sign::Asked(some),
                TakenAnswer::Wrong => Sign::Wrong,
            },
        };
    }
}

/// How much of an answer was received.
enum TakenAnswer {
    All,
    Some,
    Wrong,
}

/// # Safety
/// The connection is live and has been sent an empty query.
unsafe fn take_in(raw: *mut pq::PGconn) -> TakenAnswer {
    use pq::ExecStatusType as E;
    // SAFETY: the caller keeps the promise above; PQgetResult is called only when it does not block. A session that
    // has ended returns nothing more; its next statement reports that.
    unsafe {
        pq::PQflush(raw);
        if pq::PQconsumeInput(raw) == 0 {
            return TakenAnswer::All;
        }
        if flood::is_notified(raw) {
            return TakenAnswer::Wrong;
        }
        while pq::PQisBusy(raw) == 0 {
            let result = pq::PQgetResult(raw);
            if result.is_null() {
                return TakenAnswer::All;
            }
            let status = pq::PQresultStatus(result);
            pq::PQclear(result);
            // PQgetResult returns each of these again and again.
            if matches!(status, E::PGRES_COPY_IN | E::PGRES_COPY_OUT | E::PGRES_COPY_BOTH) {
                return TakenAnswer::Wrong;
            }
        }
        TakenAnswer::Some
    }
}

/// Returns the number of bytes that can be read from a socket, up to one more than an answer to an empty query may
/// have.
///
/// # Safety
/// The socket belongs to a live connection, and does not block.
unsafe fn arrived(socket: c_int) -> usize {
    unsafe extern "C" {
        fn recv(socket: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize;
    }
    /// The bytes stay in the socket.
    const PEEK: c_int = 2;
    let mut buffer = [0_u8; MOST + 1];
    // SAFETY: the caller keeps the promise above; the buffer has the given length.
    let length = unsafe { recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), PEEK) };
    // The session itself finds an end or an error.
    usize::try_from(length).unwrap_or(0)
}
