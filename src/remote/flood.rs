//! A bound on how much of this server's memory a shard may take. Rows of tables come by COPY, in
//! pieces; everything else that is asked for is small. libpq buffers an answer and keeps some of
//! it as long as the session, without telling how much, so the size of this process is measured.

use pq_sys as pq;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Bytes of an answer, and of all that a session's answers leave behind.
pub const MOST: u64 = 256 << 20;

/// A read of the socket that takes longer than that has brought megabytes: all of a long
/// answer may come in one.
const LONG: Duration = Duration::from_millis(2);
/// Reads between two looks, however short they are and whatever they are of.
const READS: u32 = 64;

thread_local! {
    /// Bytes of the longest row that each session of this process has brought, together.
    static ROWS: Cell<u64> = const { Cell::new(0) };
}

/// What has arrived in a session, or in a part of one.
pub struct Received {
    reads: u32,
    /// Bytes of this process before it.
    before: Option<u64>,
}

impl Default for Received {
    fn default() -> Received {
        Received { reads: 0, before: private() }
    }
}

impl Received {
    /// Called after each read of the socket; true: it has become too much.
    pub fn is_too_much(&mut self, began: Instant, most: u64) -> bool {
        self.reads = self.reads.wrapping_add(1);
        if began.elapsed() < LONG && !self.reads.is_multiple_of(READS) {
            return false;
        }
        matches!((self.before, private()), (Some(before), Some(now)) if now > before.saturating_add(most))
    }
}

/// What long rows take beside, which is no answer: libpq keeps the room for a session's longest
/// one, and gives a copy away.
pub struct FloodRoom {
    /// Those of all sessions, when this one began.
    before: u64,
    longest: u64,
}

impl Default for FloodRoom {
    fn default() -> FloodRoom {
        FloodRoom { before: ROWS.get(), longest: 0 }
    }
}

impl FloodRoom {
    /// Bytes of a row of a COPY.
    pub fn has_come(&mut self, length: u64) {
        if length > self.longest {
            ROWS.set(ROWS.get() + (length - self.longest));
            self.longest = length;
        }
    }

    /// Bytes that this process may have more, since the session began, by rows of all sessions.
    pub fn room(&self) -> u64 {
        ROWS.get().saturating_sub(self.before).saturating_mul(2)
    }
}

impl Drop for FloodRoom {
    fn drop(&mut self) {
        ROWS.set(ROWS.get().saturating_sub(self.longest));
    }
}

/// Whether a notification has come, which is freed. No session ever asks for any, and libpq
/// would keep them all.
///
/// # Safety
/// A live connection, which is open.
pub unsafe fn is_notified(raw: *mut pq::PGconn) -> bool {
    let mut is_any = false;
    // SAFETY: as the caller promises; each is given away, and freed once.
    unsafe {
        loop {
            let notification = pq::PQnotifies(raw);
            if notification.is_null() {
                return is_any;
            }
            is_any = true;
            pq::PQfreemem(notification.cast());
        }
    }
}

/// Bytes of memory that this process shares with nobody; None: the system does not tell.
fn private() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = sizes.split(' ').skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * PAGE)
}

/// Of the systems that have /proc; where pages are larger, the bound is as well.
const PAGE: u64 = 4096;
