//! A bound on how much of this server's memory a shard may use. Rows of tables arrive by COPY, in pieces; all other
//! answers are small. libpq buffers an answer and keeps some of it as long as the session, without reporting how much,
//! so the size of this process is measured.

use pq_sys as pq;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
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
    static SIZES: Option<File> = File::open("/proc/self/statm").ok();
}

/// What has arrived in a session, or in a part of one.
pub struct Received {
    reads: u32,
    /// The memory of this process before it.
    before: Option<Memory>,
}

impl Default for Received {
    fn default() -> Received {
        Received { reads: 0, before: memory() }
    }
}

impl Received {
    /// Returns whether it has become too much. It is called after each read of the socket.
    pub fn is_too_much(&mut self, began: Instant, most: u64) -> bool {
        self.reads = self.reads.wrapping_add(1);
        if began.elapsed() < LONG && !self.reads.is_multiple_of(READS) {
            return false;
        }
        let private = |memory: Memory| memory.private;
        has_grown(self.before.map(private), memory().map(private), most)
    }

    /// Returns whether libpq has made room for more. It does so once it knows the length of a row, before most of the
    /// row arrives: one read of the socket lasts as long as the shard has more to send.
    pub fn has_made_room_for(&self, most: u64) -> bool {
        let total = |memory: Memory| memory.total;
        has_grown(self.before.map(total), memory().map(total), most)
    }
}

fn has_grown(before: Option<u64>, now: Option<u64>, most: u64) -> bool {
    matches!((before, now), (Some(before), Some(now)) if now > before.saturating_add(most))
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

/// The bytes of this process's memory.
#[derive(Clone, Copy)]
struct Memory {
    /// Including what was allocated and never written to.
    total: u64,
    /// What it shares with no other process.
    private: u64,
}

/// Returns the memory of this process. Returns None if the system does not report it.
fn memory() -> Option<Memory> {
    let mut text = [0; 128];
    let length = SIZES.with(|sizes| sizes.as_ref()?.read_at(&mut text, 0).ok())?;
    let mut pages =
        std::str::from_utf8(text.get(..length)?).ok()?.split(' ').map_while(|size| size.parse::<u64>().ok());
    let (total, resident, shared) = (pages.next()?, pages.next()?, pages.next()?);
    Some(Memory { total: total * PAGE, private: resident.saturating_sub(shared) * PAGE })
}

/// The page size of the systems that have /proc; if pages are larger, the bound is as well.
const PAGE: u64 = 4096;
