//! Sessions whose server ends a transaction that nothing comes for. A worker that is frozen, or
//! whose link is gone, keeps nobody waiting on a shard for longer; one that works, on the other
//! side say, asks such a session for nothing every now and then while it waits, which is a sign
//! of life.

use super::flood;
use pq_sys as pq;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Bytes of an answer to nothing: a few settings that the server reports anew may stand beside it.
pub(super) const MOST: usize = 8 << 10;

/// A session that is kept, or whose last sign of life is not answered.
struct KeptSession {
    raw: NonNull<pq::PGconn>,
    /// Its last sign of life; none is given more often than `every`, or none at all.
    last: Instant,
    every: Option<Duration>,
    sign: Sign,
}

/// What has become of a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sign {
    /// None was given, or its answer is there.
    Answered,
    /// So many bytes have come of the answer.
    Asked(usize),
    /// What has come is no answer to nothing: nothing more is taken of it.
    Wrong,
}

thread_local! {
    static KEPT: RefCell<Vec<KeptSession>> = const { RefCell::new(Vec::new()) };
}

/// From now on, as often as that.
pub(super) fn keep(raw: NonNull<pq::PGconn>, every: Duration) {
    KEPT.with_borrow_mut(|all| match all.iter_mut().find(|kept| kept.raw == raw) {
        Some(kept) => (kept.last, kept.every) = (Instant::now(), Some(every)),
        None => all.push(KeptSession { raw, last: Instant::now(), every: Some(every), sign: Sign::Answered }),
    });
}

/// Its server ends it where nothing comes. An answer that is still to come is taken all the same.
pub(super) fn forget(raw: NonNull<pq::PGconn>) {
    KEPT.with_borrow_mut(|all| {
        all.iter_mut().filter(|kept| kept.raw == raw).for_each(|kept| kept.every = None);
        all.retain(|kept| kept.every.is_some() || kept.sign != Sign::Answered);
    });
}

/// The session is about to be closed.
pub(super) fn remove(raw: NonNull<pq::PGconn>) {
    KEPT.with_borrow_mut(|all| all.retain(|kept| kept.raw != raw));
}

/// Gives a sign of life in all sessions whose transaction is idle for long. What is being waited
/// for is not idle.
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

/// Takes what has come of an answer to nothing. It is to be complete before anything is asked.
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
        // SAFETY: a live connection: it is removed before it is closed. No function here blocks.
        unsafe {
            if pq::PQtransactionStatus(raw) != pq::PGTransactionStatusType::PQTRANS_INTRANS {
                return;
            }
            // No statement: it takes no snapshot and no lock.
            if pq::PQsendQuery(raw, c"".as_ptr()) == 1 {
                self.sign = Sign::Asked(0);
            }
            pq::PQflush(raw);
        }
    }

    /// Of what has been asked for nothing.
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

/// Of an answer.
enum TakenAnswer {
    All,
    Some,
    Wrong,
}

/// # Safety
/// A live connection that has been asked for nothing.
unsafe fn take_in(raw: *mut pq::PGconn) -> TakenAnswer {
    use pq::ExecStatusType as E;
    // SAFETY: as the caller promises; PQgetResult is called only when it does not block. A session
    // that has ended has nothing more to say; its next statement tells.
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
            // Each of these is the result again and again.
            if matches!(status, E::PGRES_COPY_IN | E::PGRES_COPY_OUT | E::PGRES_COPY_BOTH) {
                return TakenAnswer::Wrong;
            }
        }
        TakenAnswer::Some
    }
}

/// Bytes that a socket has to be read, up to one more than an answer to nothing may have.
///
/// # Safety
/// A socket of a live connection, which does not block.
unsafe fn arrived(socket: c_int) -> usize {
    unsafe extern "C" {
        fn recv(socket: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize;
    }
    /// They stay where they are.
    const PEEK: c_int = 2;
    let mut buffer = [0_u8; MOST + 1];
    // SAFETY: as the caller promises; the buffer is of the length that is said.
    let length = unsafe { recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), PEEK) };
    // An end or an error is the session's own to find.
    usize::try_from(length).unwrap_or(0)
}
