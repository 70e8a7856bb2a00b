//! A bound on how much of this server's memory a shard may use. Rows of tables arrive by COPY, in pieces; all other
//! answers are small. libpq buffers an answer and keeps some of it as long as the session, without reporting how much,
//! so the size of this process is measured.

use pq_sys as pq;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The greatest number of bytes of an answer, and of all that a session's answers leave behind.
pub const MOST: u64 = 256 << 20;

/// A read of the socket that takes longer than this may have read megabytes: a long answer may arrive at once.
const LONG: Duration = Duration::from_millis(2);
/// The number of reads between two measurements, however short they are.
const READS: u32 = 64;

thread_local! {
    /// The bytes of the longest rows that the sessions of this process have read, in total.
    static ROWS: Cell<u64> = const { Cell::new(0) };
}

/// What has arrived in a session, or in a part of one.
pub struct Received {
    reads: u32,
    /// The bytes of this process before it.
    before: Option<u64>,
}

impl Default for Received {
    fn default() -> Received {
        Received { reads: 0, before: private() }
    }
}

impl Received {
    /// Returns whether it has become too much. It is called after each read of the socket.
    pub fn is_too_much(&mut self, began: Instant, most: u64) -> bool {
        self.reads = self.reads.wrapping_add(1);
        if began.elapsed() < LONG && !self.reads.is_multiple_of(READS) {
            return false;
        }
        matches!((self.before, private()), (Some(before), Some(now)) if now > before.saturating_add(most))
    }
}

/// The memory for long rows, which do not count as answers: libpq keeps the buffer for a session's longest row, and
/// returns a copy.
pub struct FloodRoom {
    /// The value of all sessions when this one began.
    before: u64,
    longest: u64,
}

impl Default for FloodRoom {
    fn default() -> FloodRoom {
        FloodRoom { before: ROWS.get(), longest: 0 }
    }
}

impl FloodRoom {
    /// Notes the bytes of a row of a COPY.
    pub fn has_come(&mut self, length: u64) {
        if length > self.longest {
            ROWS.set(ROWS.get() + (length - self.longest));
            self.longest = length;
        }
    }

    /// Returns the bytes by which this process may have grown since the session began, because of rows of all
    /// sessions.
    pub fn room(&self) -> u64 {
        ROWS.get().saturating_sub(self.before).saturating_mul(2)
    }
}

impl Drop for FloodRoom {
    fn drop(&mut self) {
        ROWS.set(ROWS.get().saturating_sub(self.longest));
    }
}

/// Whether a notification has come, which is freed. No session ever asks for any, and libpq would keep them all.
///
/// # Safety
/// The connection is live and open.
pub unsafe fn is_notified(raw: *mut pq::PGconn) -> bool {
    let mut is_any = false;
    // SAFETY: the caller keeps the promise above; each notification is returned to us, and freed once.
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

/// Returns the bytes of memory that this process shares with no other. Returns None if the system does not report it.
fn private() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = sizes.split(' ').skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * PAGE)
}

/// The page size of the systems that have /proc; if pages are larger, the bound is as well.
const PAGE: u64 = 4096;
