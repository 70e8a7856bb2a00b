//! COPY from one shard directly into another: buffers are forwarded unchanged, and only single rows are collected. A
//! row arrives as a whole, however long it is: libpq buffers it and returns a copy, which is sent on in pieces.

use super::connection::{Connection, IN_ALL};
use super::error::RemoteError;
use super::flood::Received;
use super::result::ResultStatus;
use super::wait::Ready;
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

    /// Whether this is exceeded if this many rows may be in transit: while one arrives, libpq keeps the buffers for
    /// others, and the copies that it has returned are still sent on.
    pub(super) fn are_passed_by(self, received: &mut Received, began: Instant, rows: u64) -> bool {
        let each = self.row.saturating_mul(2).saturating_add(BESIDE);
        received.is_too_much(began, each.saturating_mul(rows))
    }
}

impl Bounds {
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
        let length = u64::try_from(row.len()).unwrap_or(u64::MAX);
        let bytes = before.saturating_add(length);
        if length > self.bounds.row {
            return Err(RemoteError::row_too_long(source.shard(), self.bounds.row));
        }
        source.rows.has_come(length);
        if let Some(limit) = self.bounds.bytes.filter(|limit| bytes > *limit) {
            return Err(RemoteError::too_large(source.shard(), limit));
        }
        if let Some(look) = self.look.as_mut() {
            look(row)?;
        }
        Ok(bytes)
    }
}

/// Runs `out` (COPY .. TO STDOUT) on the source and `into` (COPY .. FROM STDIN, with the statements before it) on the
/// target, and passes either side's failure to the other. It is aborted at the limits. After an error both sessions
/// may be in the middle of something: the caller closes them.
pub fn pipe(
    source: &mut Connection,
    out: &str,
    target: &mut Connection,
    into: &str,
    bounds: Bounds,
) -> Result<Copied, RemoteError> {
    pipe_one(source, target, CopyPiece { out: out.to_owned(), into: into.to_owned(), bounds, look: None })
}

pub fn pipe_one(
    source: &mut Connection,
    target: &mut Connection,
    piece: CopyPiece<'_>,
) -> Result<Copied, RemoteError> {
    let copied = pipe_all(source, target, vec![piece]).map_err(|(_, error)| error)?;
    Ok(copied.into_iter().next().unwrap_or_default())
}

/// Runs several COPYs one after the other; each side is asked in one message, so that each COPY waits for only one
/// answer besides what all of them wait for. This is for few rows: a source that has sent everything waits for the
/// target, without a sign of life. An error comes with the number of its piece.
pub fn pipe_all(
    source: &mut Connection,
    target: &mut Connection,
    pieces: Vec<CopyPiece<'_>>,
) -> Result<Vec<Copied>, (usize, RemoteError)> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let message =
        |of: &dyn Fn(&CopyPiece<'_>) -> String| pieces.iter().map(of).collect::<Vec<_>>().join("; ");
    // Both are sent at once, so that neither waits for the other to begin.
    source.send(&message(&|piece| piece.out.clone())).map_err(|error| (0, error))?;
    target.send(&message(&|piece| piece.into.clone())).map_err(|error| (0, error))?;
    let mut all = Vec::new();
    let last = pieces.len().saturating_sub(1);
    for (number, mut piece) in pieces.into_iter().enumerate() {
        let which = if number == last { Which::Last } else { Which::OneOfMany };
        all.push(next_piece(source, target, &mut piece, which).map_err(|error| (number, error))?);
    }
    Ok(all)
}

/// Whether a message ends with a COPY.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    OneOfMany,
    Last,
}

fn next_piece(
    source: &mut Connection,
    target: &mut Connection,
    piece: &mut CopyPiece<'_>,
    which: Which,
) -> Result<Copied, RemoteError> {
    let stall = piece.bounds.stall;
    started(source, stall)?;
    started(target, stall)?;
    match forward(source, target, piece, which) {
        Ok(Sent { rows: sent, bytes }) => {
            let rows = end(target, None, stall, which)?;
            if rows != sent {
                let message = format!("{sent} rows were copied and {rows} arrived");
                return Err(RemoteError::of_data(target.shard(), message));
            }
            Ok(Copied { rows, bytes })
        }
        Err(Broken::Source(error)) => {
            // Without this the target would take the end of the connection, or worse an ordinary end, for the end of
            // the data.
            let _ = end(target, Some("the source failed"), stall, Which::Last);
            Err(error)
        }
        Err(Broken::Target(error)) => Err(error),
    }
}

/// What the source has sent.
struct Sent {
    rows: u64,
    bytes: u64,
}

enum Broken {
    Source(RemoteError),
    Target(RemoteError),
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

fn forward(
    source: &mut Connection,
    target: &mut Connection,
    piece: &mut CopyPiece<'_>,
    which: Which,
) -> Result<Sent, Broken> {
    let bounds = piece.bounds;
    let mut bytes = 0_u64;
    let mut outgoing = Outgoing::new(bounds, 1);
    let mut received = Received::default();
    // The limit is for one row, whatever else arrives meanwhile.
    let (mut waited, most) = (Duration::ZERO, bounds.stall.saturating_mul(IN_ALL));
    loop {
        match next(source) {
            NextPiece::Row(row) => {
                waited = Duration::ZERO;
                bytes = piece.admit(source, row.bytes(), bytes).map_err(Broken::Source)?;
                outgoing.add(target, row.bytes()).map_err(Broken::Target)?;
            }
            NextPiece::Wait => {
                outgoing.send(target).map_err(Broken::Target)?;
                if waited > most {
                    let error = RemoteError::no_answer(source.shard(), most);
                    return Err(Broken::Source(source.give_up(error)));
                }
                let from = Instant::now();
                let began = wait_for_data(source, target, bounds.stall)?;
                waited += began.duration_since(from);
                if bounds.is_passed_by(&mut received, began) {
                    return Err(Broken::Source(RemoteError::row_too_long(source.shard(), bounds.row)));
                }
            }
            NextPiece::End => {
                outgoing.send(target).map_err(Broken::Target)?;
                let rows = done(source, source.timeout, which).map_err(Broken::Source)?;
                return Ok(Sent { rows, bytes });
            }
            NextPiece::Failed => return Err(Broken::Source(source.last_error())),
        }
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

    fn add(&mut self, target: &mut Connection, row: &[u8]) -> Result<(), RemoteError> {
        if self.takes(row) {
            self.collect(target, row)?;
            return self.empty(target);
        }
        self.send(target)?;
        let mut from = 0;
        while from < row.len() {
            from = self.hand_on(target, row, from)?;
            self.empty(target)?;
        }
        Ok(())
    }

    fn send(&mut self, target: &mut Connection) -> Result<(), RemoteError> {
        self.hand_over(target)?;
        self.empty(target)
    }

    /// Waits until the unsent bytes have left, if they are too many.
    fn empty(&mut self, target: &mut Connection) -> Result<(), RemoteError> {
        if self.is_full() {
            flush(target, self.bounds)?;
            self.has_left();
        }
        Ok(())
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

/// Waits for the source while the target receives what is unsent. Returns when reading began.
fn wait_for_data(
    source: &mut Connection,
    target: &mut Connection,
    stall: Duration,
) -> Result<Instant, Broken> {
    // SAFETY: both connections are live.
    let unsent = match unsafe { pq::PQflush(target.raw()) } {
        0 => false,
        1 => true,
        _ => return Err(Broken::Target(target_error(target, stall))),
    };
    let waited = if unsent {
        Connection::wait_any(&[(source, Ready::Read), (target, Ready::ReadOrWrite)], stall)
    } else {
        source.wait_ready(Ready::Read, stall)
    };
    if let Err(error) = waited {
        if unsent {
            target.give_up(error.clone());
        }
        return Err(Broken::Source(source.give_up(error)));
    }
    let began = Instant::now();
    source.consume().map_err(Broken::Source)?;
    if unsent {
        target.consume().map_err(Broken::Target)?;
    }
    Ok(began)
}

/// Sends everything that libpq holds for the target.
fn flush(target: &mut Connection, bounds: Bounds) -> Result<(), RemoteError> {
    let mut received = Received::default();
    let (from, all) = (Instant::now(), bounds.stall.saturating_mul(IN_ALL));
    loop {
        // SAFETY: the connection is live.
        match unsafe { pq::PQflush(target.raw()) } {
            0 => return Ok(()),
            1 if from.elapsed() > all => {
                let error = RemoteError::no_answer(target.shard(), all);
                return Err(target.give_up(error));
            }
            1 => {
                if let Err(error) = target.wait_ready(Ready::ReadOrWrite, bounds.stall) {
                    return Err(target.give_up(error));
                }
                let began = Instant::now();
                // A target that fails reports it while it is written to.
                target.consume()?;
                // Whatever the target answers meanwhile is no row of the source's.
                if bounds.is_passed_by(&mut received, began) {
                    return Err(RemoteError::flooded(target.shard(), bounds.row));
                }
            }
            _ => return Err(target.last_error()),
        }
    }
}

/// Ends the target's COPY, as complete or with the reason why it is not, and returns its rows.
fn end(
    target: &mut Connection,
    failure: Option<&str>,
    stall: Duration,
    which: Which,
) -> Result<u64, RemoteError> {
    let text = failure.map(super::connection::to_c);
    let message = text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: the connection is live and in COPY IN state.
    if unsafe { pq::PQputCopyEnd(target.raw(), message) } == -1 {
        return Err(target_error(target, stall));
    }
    done(target, stall, which)
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
