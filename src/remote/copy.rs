//! What a COPY is, and its moves on either side. A row arrives as a whole, however long it is: libpq buffers it and
//! returns a copy, which is sent on in pieces.

use super::connection::Connection;
use super::error::RemoteError;
use super::flood::Received;
use super::result::ResultStatus;
use crate::guc;
use pq_sys as pq;
use std::ffi::c_char;
use std::time::{Duration, Instant};

/// Bytes passed to libpq before the target is waited for. Waiting earlier makes the two servers take turns; Citus
/// measured 8 MB as the best.
const UNSENT_LIMIT: usize = 8 << 20;
/// The least value of this limit, however many COPYs run at the same time.
const LEAST_UNSENT: usize = 1 << 20;

/// What a pipe has moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    pub rows: u64,
    pub bytes: u64,
}

/// The limits of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The time in which one of the sides must make progress.
    pub stall: Duration,
    /// The greatest number of bytes. `None` if unlimited.
    pub bytes: Option<u64>,
    /// The greatest number of bytes of one row, as COPY writes it.
    pub row: u64,
}

/// The memory that a copy takes in this process in addition to a row.
const BESIDE: u64 = 64 << 20;

impl Bounds {
    /// Whether more of a row has arrived than one may have.
    pub(super) fn is_passed_by(self, received: &mut Received, began: Instant) -> bool {
        received.is_too_much(began, self.row + BESIDE)
    }

    /// Whether this is exceeded if this many rows may be in transit.
    pub(super) fn are_passed_by(self, received: &mut Received, began: Instant, rows: u64) -> bool {
        received.is_too_much(began, self.room_for(rows))
    }

    /// Whether a row is announced that exceeds this, if this many rows may be in transit.
    pub(super) fn are_announced_to_pass(self, received: &Received, rows: u64) -> bool {
        received.has_made_room_for(self.room_for(rows))
    }

    /// Returns the memory for several rows: while one arrives, libpq keeps the buffers for others, which it doubles
    /// until a row fits in, and the copies that it has returned are still sent on.
    fn room_for(self, rows: u64) -> u64 {
        self.row.saturating_mul(2).saturating_add(BESIDE).saturating_mul(rows)
    }

    /// Returns the number of bytes with this row.
    pub(super) fn admit(self, source: &mut Connection, row: &[u8], before: u64) -> Result<u64, RemoteError> {
        let length = u64::try_from(row.len()).unwrap_or(u64::MAX);
        let bytes = before.saturating_add(length);
        if length > self.row {
            return Err(RemoteError::row_too_long(source.shard(), self.row));
        }
        source.rows.has_come(length);
        match self.bytes.filter(|limit| bytes > *limit) {
            Some(limit) => Err(RemoteError::too_large(source.shard(), limit)),
            None => Ok(bytes),
        }
    }

    /// Returns the limits of an unlimited copy. A server that sorts or waits for its disk sends nothing for long; the
    /// system notices a lost connection earlier.
    pub fn unlimited() -> Bounds {
        Bounds { stall: guc::remote_timeout() * 10, bytes: None, row: guc::max_row_bytes() }
    }
}

/// A function that checks the bytes of a copy.
pub type CopyLook<'a> = Box<dyn FnMut(&[u8]) -> Result<(), RemoteError> + 'a>;

/// One COPY from the source into the target.
pub struct CopyPiece<'a> {
    /// The COPY .. TO STDOUT, on the source.
    pub out: String,
    /// The COPY .. FROM STDIN, on the target, with the statements before it.
    pub into: String,
    pub bounds: Bounds,
    /// The check of each piece of bytes before the target gets it.
    pub look: Option<CopyLook<'a>>,
}

impl CopyPiece<'_> {
    /// Checks whether a row may be sent on that came after this many bytes. Returns the bytes including this row.
    pub(super) fn admit(
        &mut self,
        source: &mut Connection,
        row: &[u8],
        before: u64,
    ) -> Result<u64, RemoteError> {
        let bytes = self.bounds.admit(source, row, before)?;
        if let Some(look) = self.look.as_mut() {
            look(row)?;
        }
        Ok(bytes)
    }
}

/// Whether a message ends with a COPY.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    OneOfMany,
    Last,
}

pub(super) fn started(connection: &mut Connection, stall: Duration) -> Result<(), RemoteError> {
    connection.in_all(stall, |session| begun(session, stall))
}

fn begun(connection: &mut Connection, stall: Duration) -> Result<(), RemoteError> {
    while let Some(result) = connection.next_result(stall)? {
        match result.status() {
            ResultStatus::Copy => return Ok(()),
            ResultStatus::Failed => {
                let error = result.error(connection.shard());
                drop(result);
                while connection.next_result(stall)?.is_some() {}
                return Err(error);
            }
            // This result belongs to a statement before it.
            ResultStatus::Rows => {}
        }
    }
    Err(RemoteError::connection(connection.shard(), "no COPY was started"))
}

/// Bytes that are collected into one message to the target: libpq returns a message for each row, and each message
/// costs time on both sides.
const MESSAGE: usize = 32 << 10;
/// A longer row is sent on in pieces of this size.
const PIECE: usize = 256 << 10;

/// A buffer that libpq has returned for a COPY, freed once.
pub(super) struct CopyRow {
    buffer: *mut c_char,
    length: usize,
}

impl CopyRow {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: this is libpq's own buffer of this length, which lives as long as this.
        unsafe { std::slice::from_raw_parts(self.buffer.cast::<u8>(), self.length) }
    }
}

impl Drop for CopyRow {
    fn drop(&mut self) {
        // SAFETY: libpq has returned it; this is its last use.
        unsafe { pq::PQfreemem(self.buffer.cast()) };
    }
}

/// The next part of a COPY.
pub(super) enum NextPiece {
    Row(CopyRow),
    /// Nothing has arrived yet.
    Wait,
    End,
    Failed,
}

pub(super) fn next(source: &mut Connection) -> NextPiece {
    let mut buffer: *mut c_char = std::ptr::null_mut();
    // SAFETY: the connection is live and in COPY state; the buffer is libpq's, of the length that it returns.
    match unsafe { pq::PQgetCopyData(source.raw(), &mut buffer, 1) } {
        length @ 1.. => NextPiece::Row(CopyRow { buffer, length: usize::try_from(length).unwrap_or(0) }),
        0 => NextPiece::Wait,
        -1 => NextPiece::End,
        _ => NextPiece::Failed,
    }
}

/// What is sent to the target. Short rows are collected, long ones are sent as they are.
pub(super) struct Outgoing {
    bounds: Bounds,
    message: Vec<u8>,
    /// Bytes that libpq has been given since it was last waited for, and their limit.
    unsent: usize,
    most: usize,
}

impl Outgoing {
    /// Returns one of this many at the same time, which share the memory limit.
    pub(super) fn new(bounds: Bounds, lanes: usize) -> Outgoing {
        let most = (UNSENT_LIMIT / lanes.max(1)).max(LEAST_UNSENT);
        Outgoing { bounds, message: Vec::with_capacity(2 * MESSAGE), unsent: 0, most }
    }

    /// Whether a row is collected with others.
    pub(super) fn takes(&self, row: &[u8]) -> bool {
        row.len() < MESSAGE
    }

    /// Collects a short row, and sends what there is once it is a message.
    pub(super) fn collect(&mut self, target: &mut Connection, row: &[u8]) -> Result<(), RemoteError> {
        self.message.extend_from_slice(row);
        if self.message.len() >= MESSAGE { self.hand_over(target) } else { Ok(()) }
    }

    /// Sends what was collected.
    pub(super) fn hand_over(&mut self, target: &mut Connection) -> Result<(), RemoteError> {
        if !self.message.is_empty() {
            put(target, &self.message, self.bounds)?;
            self.unsent += self.message.len();
            self.message.clear();
        }
        Ok(())
    }

    /// Sends a piece of a long row, because libpq moves its unsent bytes in memory with each piece that leaves.
    /// Message boundaries have no meaning to COPY. Returns the end of the piece.
    pub(super) fn hand_on(
        &mut self,
        target: &mut Connection,
        row: &[u8],
        from: usize,
    ) -> Result<usize, RemoteError> {
        let to = row.len().min(from + PIECE);
        let piece = row.get(from..to).unwrap_or_default();
        put(target, piece, self.bounds)?;
        self.unsent += piece.len();
        Ok(to)
    }

    /// Whether the target must be waited for.
    pub(super) fn is_full(&self) -> bool {
        self.unsent >= self.most
    }

    pub(super) fn has_left(&mut self) {
        self.unsent = 0;
    }
}

fn put(target: &mut Connection, bytes: &[u8], bounds: Bounds) -> Result<(), RemoteError> {
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    // SAFETY: the connection is live and in COPY state; libpq copies the bytes.
    match unsafe { pq::PQputCopyData(target.raw(), bytes.as_ptr().cast(), length) } {
        1 => Ok(()),
        _ => Err(target_error(target, bounds.stall)),
    }
}

/// Ends the target's COPY with the reason why it is not complete, and receives its answer.
pub(super) fn end_failed(target: &mut Connection, why: &str, stall: Duration) {
    let text = super::connection::to_c(why);
    // SAFETY: the connection is live; outside of a COPY this is an error, which changes nothing.
    if unsafe { pq::PQputCopyEnd(target.raw(), text.as_ptr()) } == 1 {
        // It is the error of the source that counts.
        let _ = done(target, stall, Which::Last);
    }
}

/// Returns the rows of a COPY that has ended. After the last one of a message everything is received, and also after
/// one that has failed, since no other follows then.
pub(super) fn done(session: &mut Connection, timeout: Duration, which: Which) -> Result<u64, RemoteError> {
    session.in_all(timeout, |session| {
        let mut rows = 0;
        let mut failed = None;
        while let Some(result) = session.next_result(timeout)? {
            match result.status() {
                ResultStatus::Failed => failed = Some(result.error(session.shard())),
                ResultStatus::Rows | ResultStatus::Copy => rows = result.affected(),
            }
            if which == Which::OneOfMany && failed.is_none() {
                break;
            }
        }
        failed.map_or(Ok(rows), Err)
    })
}

/// Returns the target's error after it refused data.
fn target_error(target: &mut Connection, stall: Duration) -> RemoteError {
    match target.next_result(stall) {
        Ok(Some(result)) if matches!(result.status(), ResultStatus::Failed) => result.error(target.shard()),
        Ok(_) | Err(_) => target.last_error(),
    }
}
