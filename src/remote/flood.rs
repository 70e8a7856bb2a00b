//! A bound on how much of this server's memory a shard's answer may take. Rows of tables come
//! by COPY, in pieces; everything else that is asked for is small. libpq buffers an answer and
//! does not tell the size of its buffer, so the size of this process is measured.

use std::time::{Duration, Instant};

/// Bytes of an answer.
pub const MOST: u64 = 256 << 20;

/// A read of the socket that takes longer than that has brought megabytes: all of a long
/// answer may come in one.
const LONG: Duration = Duration::from_millis(2);
/// Reads between two looks, however short they are.
const READS: u32 = 64;

/// What has arrived of one answer.
pub struct Received {
    reads: u32,
    /// Bytes of this process before it.
    before: Option<u64>,
}

impl Default for Received {
    fn default() -> Received {
        Received { reads: 0, before: resident() }
    }
}

impl Received {
    /// Called after each read of the socket; true: the answer has become too much.
    pub fn is_too_much(&mut self, began: Instant, most: u64) -> bool {
        self.reads += 1;
        if began.elapsed() < LONG && !self.reads.is_multiple_of(READS) {
            return false;
        }
        matches!((self.before, resident()), (Some(before), Some(now)) if now > before.saturating_add(most))
    }

    /// Before the next answer.
    pub fn reset(&mut self) {
        if self.reads >= READS {
            self.before = resident();
        }
        self.reads = 0;
    }
}

/// Bytes of memory that this process has; None: the system does not tell.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// Of the systems that have /proc; where pages are larger, the bound is as well.
const PAGE: u64 = 4096;
