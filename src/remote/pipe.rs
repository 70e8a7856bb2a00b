//! COPY from one shard directly into another: buffers are forwarded unchanged, and only single rows are collected.
//!
//! Each lane has two sessions of its own; one lane is the plain case. One loop forwards for all of them: while the
//! servers of one are busy, the others continue. Each takes as much memory here as a single one.

use crate::remote::connection::{Connection, IN_ALL};
use crate::remote::copy::{
    Bounds, Copied, CopyPiece, CopyRow, NextPiece, Outgoing, Which, done, end_failed, next,
};
use crate::remote::error::RemoteError;
use crate::remote::flood::Received;
use crate::remote::result::{QueryResult, ResultStatus};
use crate::remote::wait::Ready;
use pq_sys as pq;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The source and the target of rows, copied one piece after the other; each side is asked in one message.
pub struct Lane<'a> {
    pub source: &'a mut Connection,
    pub target: &'a mut Connection,
    pub pieces: Vec<CopyPiece<'a>>,
}

/// The piece that has failed, and its lane.
#[derive(Debug)]
pub struct FailedPiece {
    pub lane: usize,
    pub piece: usize,
    pub error: RemoteError,
}

/// An error of a lane.
enum LaneError {
    /// The source has failed, and the target waits for more of a COPY.
    TargetWaits(RemoteError),
    Other(RemoteError),
}

impl From<RemoteError> for LaneError {
    fn from(error: RemoteError) -> LaneError {
        LaneError::Other(error)
    }
}

/// Runs `out` (COPY .. TO STDOUT) on the source and `into` (COPY .. FROM STDIN, with the statements before it) on the
/// target, as one lane with one piece.
pub fn statements(
    source: &mut Connection,
    out: &str,
    target: &mut Connection,
    into: &str,
    bounds: Bounds,
) -> Result<Copied, RemoteError> {
    one(source, target, CopyPiece { out: out.to_owned(), into: into.to_owned(), bounds, look: None })
}

pub fn one(
    source: &mut Connection,
    target: &mut Connection,
    piece: CopyPiece<'_>,
) -> Result<Copied, RemoteError> {
    let copied = in_turn(source, target, vec![piece]).map_err(|(_, error)| error)?;
    Ok(copied.into_iter().next().unwrap_or_default())
}

/// Runs several pieces in one lane. This is for few rows: a source that has sent everything waits for the target,
/// without a sign of life. An error comes with the number of its piece.
pub fn in_turn(
    source: &mut Connection,
    target: &mut Connection,
    pieces: Vec<CopyPiece<'_>>,
) -> Result<Vec<Copied>, (usize, RemoteError)> {
    let copied = parallel(vec![Lane { source, target, pieces }]);
    let copied = copied.map_err(|FailedPiece { piece, error, .. }| (piece, error))?;
    Ok(copied.into_iter().next().unwrap_or_default())
}

/// Returns what each piece of each lane has moved. After an error all sessions may be in the middle of something: the
/// caller closes them, and none of what they have copied may be committed.
pub fn parallel(lanes: Vec<Lane<'_>>) -> Result<Vec<Vec<Copied>>, FailedPiece> {
    // Each may hold a row of this length.
    let count = lanes.len();
    let mut all = Vec::new();
    for (lane, asked) in lanes.into_iter().enumerate() {
        all.push(RunningLane::begin(asked, count).map_err(|error| FailedPiece { lane, piece: 0, error })?);
    }
    loop {
        let mut waiting = Vec::new();
        for (lane, running) in all.iter_mut().enumerate() {
            let needs = running.go_on().map_err(|error| running.fail(lane, error))?;
            waiting.extend(needs.map(|needs| (lane, needs)));
        }
        if waiting.is_empty() {
            return Ok(all.into_iter().map(|running| running.copied).collect());
        }
        wait(&mut all, &waiting)?;
        for (lane, needs) in &waiting {
            let running = &mut all[*lane];
            running.take_in(*needs).map_err(|error| running.fail(*lane, error))?;
        }
    }
}

/// What a lane waits for, on each side.
#[derive(Clone, Copy, Default)]
struct Needs {
    source: Option<Ready>,
    target: Option<Ready>,
}

fn wait(all: &mut [RunningLane<'_>], waiting: &[(usize, Needs)]) -> Result<(), FailedPiece> {
    let mut sessions: Vec<(&Connection, Ready)> = Vec::new();
    // The session that has been silent for the longest time ends the wait.
    let (mut left, mut first) = (Duration::MAX, (0, Needs::default()));
    for (lane, needs) in waiting {
        let running = &all[*lane];
        sessions.extend(needs.source.map(|ready| (&*running.source, ready)));
        sessions.extend(needs.target.map(|ready| (&*running.target, ready)));
        let still = running.stall().saturating_sub(running.heard.elapsed());
        if still < left {
            (left, first) = (still, (*lane, *needs));
        }
    }
    let waited = Connection::wait_any(&sessions, left);
    let (lane, needs) = first;
    waited.map_err(|error| {
        let running = &mut all[lane];
        let sides = [(&mut *running.source, needs.source), (&mut *running.target, needs.target)];
        for (session, _) in sides.into_iter().filter(|(_, ready)| ready.is_some()) {
            session.give_up(error.clone());
        }
        FailedPiece { lane, piece: running.copied.len(), error }
    })
}

/// A running lane.
struct RunningLane<'a> {
    source: &'a mut Connection,
    target: &'a mut Connection,
    pieces: VecDeque<CopyPiece<'a>>,
    copied: Vec<Copied>,
    now: Now,
    /// When something has arrived last, and when a row or an answer was complete.
    heard: Instant,
    moved: Instant,
    received: Received,
    /// The number of lanes that run at the same time, including this one.
    lanes: usize,
}

/// What the first piece is doing.
enum Now {
    /// Both sides begin.
    Starts {
        source: bool,
        target: bool,
    },
    Moves(MovingLane),
    /// The source has sent everything, and reports the number of rows.
    Given(MovingLane, Option<u64>),
    /// The target must be told that this was all.
    Ends(MovingLane, u64),
    /// The target reports the number of rows it has.
    Taken(MovingLane, u64, Option<u64>),
}

struct MovingLane {
    outgoing: Outgoing,
    bytes: u64,
    /// A long row of which this many bytes were sent on.
    long: Option<(CopyRow, usize)>,
}

impl MovingLane {
    /// Returns the bytes that the target was given, or will be with the next message.
    fn handed_on(&self) -> u64 {
        let of_long = self.long.as_ref().map_or(0, |(row, to)| row.bytes().len().saturating_sub(*to));
        self.bytes.saturating_sub(u64::try_from(of_long).unwrap_or(u64::MAX))
    }
}

/// The available part of an answer.
enum AtHand {
    Result(Option<QueryResult>),
    Later(Ready),
}

impl<'a> RunningLane<'a> {
    fn begin(lane: Lane<'a>, lanes: usize) -> Result<RunningLane<'a>, RemoteError> {
        let Lane { source, target, pieces } = lane;
        if !pieces.is_empty() {
            let message =
                |of: fn(&CopyPiece<'a>) -> String| pieces.iter().map(of).collect::<Vec<_>>().join("; ");
            source.send(&message(|piece| piece.out.clone()))?;
            target.send(&message(|piece| piece.into.clone()))?;
        }
        let now = Instant::now();
        Ok(RunningLane {
            source,
            target,
            pieces: pieces.into(),
            copied: Vec::new(),
            now: Now::Starts { source: false, target: false },
            heard: now,
            moved: now,
            received: Received::default(),
            lanes,
        })
    }

    fn stall(&self) -> Duration {
        self.pieces.front().map_or(Duration::MAX, |piece| piece.bounds.stall)
    }

    /// Returns the error of the piece that is being moved.
    fn fail(&mut self, lane: usize, error: LaneError) -> FailedPiece {
        let error = match error {
            LaneError::TargetWaits(error) => {
                // Without this the target would take the end of the connection, or worse an ordinary end, for the end
                // of the data.
                end_failed(self.target, "the source failed", self.stall().min(self.target.timeout));
                error
            }
            LaneError::Other(error) => error,
        };
        FailedPiece { lane, piece: self.copied.len(), error }
    }

    /// Whether the target waits for rows.
    fn is_moving(&self) -> bool {
        matches!(self.now, Now::Moves(_) | Now::Given(..))
    }

    /// Continues as far as possible without waiting, and returns what it waits for. Returns None if everything has
    /// moved.
    fn go_on(&mut self) -> Result<Option<Needs>, LaneError> {
        while !self.pieces.is_empty() {
            if let Some(needs) = self.advance()? {
                let all = self.stall().saturating_mul(IN_ALL);
                if self.moved.elapsed() > all {
                    let silent = if needs.source.is_some() { &mut self.source } else { &mut self.target };
                    let error = RemoteError::no_answer(silent.shard(), all);
                    return Err(silent.give_up(error).into());
                }
                return Ok(Some(needs));
            }
            self.moved = Instant::now();
        }
        Ok(None)
    }

    /// Makes one move of the first piece, and returns what it needs before the next one.
    fn advance(&mut self) -> Result<Option<Needs>, LaneError> {
        let Some(piece) = self.pieces.front_mut() else { return Ok(None) };
        let now = std::mem::replace(&mut self.now, Now::Starts { source: false, target: false });
        let (next, needs) = match now {
            Now::Starts { source, target } => {
                start(self.source, self.target, piece, self.lanes, source, target)?
            }
            Now::Moves(moving) => {
                let before = moving.handed_on();
                let (next, needs) = forward(self.source, self.target, piece, moving)?;
                if matches!(&next, Now::Moves(moving) if moving.handed_on() > before) {
                    self.moved = Instant::now();
                }
                (next, needs)
            }
            Now::Given(moving, rows) => given(self.source, moving, rows, which(self.pieces.len()))?,
            Now::Ends(moving, sent) => end(self.target, moving, sent)?,
            Now::Taken(moving, sent, rows) => {
                match taken(self.target, moving, sent, rows, which(self.pieces.len()))? {
                    Ok(copied) => {
                        self.copied.push(copied);
                        self.pieces.pop_front();
                        return Ok(None);
                    }
                    Err(waits) => waits,
                }
            }
        };
        self.now = next;
        Ok(needs)
    }

    /// Reads what has arrived.
    fn take_in(&mut self, needs: Needs) -> Result<(), LaneError> {
        if needs.source.is_some() {
            let is_moving = self.is_moving();
            let read = self.read_source();
            read.map_err(|error| if is_moving { LaneError::TargetWaits(error) } else { error.into() })?;
        }
        if needs.target.is_some() {
            self.read_target()?;
        }
        self.heard = Instant::now();
        Ok(())
    }

    fn read_source(&mut self) -> Result<(), RemoteError> {
        self.source.require_time()?;
        let Some(bounds) = self.pieces.front().map(|piece| piece.bounds) else {
            return self.source.consume();
        };
        if bounds.are_announced_to_pass(&self.received, self.lanes as u64) {
            return Err(RemoteError::row_too_long(self.source.shard(), bounds.row));
        }
        let began = Instant::now();
        self.source.consume()?;
        // While a single lane reads, it has no row that is still handed on.
        let is_passed = if self.lanes == 1 {
            bounds.is_passed_by(&mut self.received, began)
        } else {
            bounds.are_passed_by(&mut self.received, began, self.lanes as u64)
        };
        if is_passed { Err(RemoteError::row_too_long(self.source.shard(), bounds.row)) } else { Ok(()) }
    }

    fn read_target(&mut self) -> Result<(), RemoteError> {
        self.target.require_time()?;
        let began = Instant::now();
        self.target.consume()?;
        let Some(bounds) = self.pieces.front().map(|piece| piece.bounds) else { return Ok(()) };
        // Whatever the target answers meanwhile is no row of the source's.
        let is_passed = bounds.are_passed_by(&mut self.received, began, self.lanes as u64);
        if is_passed { Err(RemoteError::flooded(self.target.shard(), bounds.row)) } else { Ok(()) }
    }
}

fn which(left: usize) -> Which {
    if left == 1 { Which::Last } else { Which::OneOfMany }
}

type LaneStep = Result<(Now, Option<Needs>), LaneError>;

fn of_source(ready: Ready) -> Option<Needs> {
    Some(Needs { source: Some(ready), target: None })
}

fn of_target(ready: Ready) -> Option<Needs> {
    Some(Needs { source: None, target: Some(ready) })
}

/// Waits until both sides report that their COPY has begun.
fn start(
    source: &mut Connection,
    target: &mut Connection,
    piece: &CopyPiece<'_>,
    lanes: usize,
    mut source_has: bool,
    mut target_has: bool,
) -> LaneStep {
    let mut needs = Needs::default();
    for (session, has, need) in [
        (&mut *source, &mut source_has, &mut needs.source),
        (&mut *target, &mut target_has, &mut needs.target),
    ] {
        while !*has && need.is_none() {
            match at_hand(session)? {
                AtHand::Later(ready) => *need = Some(ready),
                AtHand::Result(Some(result)) => match result.status() {
                    ResultStatus::Copy => *has = true,
                    ResultStatus::Failed => return Err(failed(session, result).into()),
                    // This result belongs to a statement before it.
                    ResultStatus::Rows => {}
                },
                AtHand::Result(None) => {
                    return Err(RemoteError::connection(session.shard(), "no COPY was started").into());
                }
            }
        }
    }
    if source_has && target_has {
        let moving = MovingLane { outgoing: Outgoing::new(piece.bounds, lanes), bytes: 0, long: None };
        return Ok((Now::Moves(moving), None));
    }
    Ok((Now::Starts { source: source_has, target: target_has }, Some(needs)))
}

/// Forwards rows, until the source has no more available or the target must first receive what there is.
fn forward(
    source: &mut Connection,
    target: &mut Connection,
    piece: &mut CopyPiece<'_>,
    mut moving: MovingLane,
) -> LaneStep {
    loop {
        if moving.outgoing.is_full() {
            if flushed(target)? {
                moving.outgoing.has_left()
            } else {
                return Ok((Now::Moves(moving), of_target(Ready::ReadOrWrite)));
            }
        }
        if let Some((row, from)) = moving.long.take() {
            let to = moving.outgoing.hand_on(target, row.bytes(), from)?;
            if to < row.bytes().len() {
                moving.long = Some((row, to));
            }
            continue;
        }
        match next(source) {
            NextPiece::Row(row) => {
                let admitted = piece.admit(source, row.bytes(), moving.bytes);
                moving.bytes = admitted.map_err(LaneError::TargetWaits)?;
                if moving.outgoing.takes(row.bytes()) {
                    moving.outgoing.collect(target, row.bytes())?;
                } else {
                    moving.outgoing.hand_over(target)?;
                    moving.long = Some((row, 0));
                }
            }
            NextPiece::Wait => {
                moving.outgoing.hand_over(target)?;
                let target_needs = (!flushed(target)?).then_some(Ready::ReadOrWrite);
                let needs = Needs { source: Some(Ready::Read), target: target_needs };
                return Ok((Now::Moves(moving), Some(needs)));
            }
            NextPiece::End => {
                moving.outgoing.hand_over(target)?;
                return Ok((Now::Given(moving, None), None));
            }
            NextPiece::Failed => return Err(LaneError::TargetWaits(source.last_error())),
        }
    }
}

/// Reads the source's number of rows.
fn given(source: &mut Connection, moving: MovingLane, rows: Option<u64>, which: Which) -> LaneStep {
    match answered(source, rows, which).map_err(LaneError::TargetWaits)? {
        Ok(rows) => Ok((Now::Ends(moving, rows), None)),
        Err((rows, ready)) => Ok((Now::Given(moving, rows), of_source(ready))),
    }
}

fn end(target: &mut Connection, moving: MovingLane, sent: u64) -> LaneStep {
    // SAFETY: a live connection in COPY IN state.
    match unsafe { pq::PQputCopyEnd(target.raw(), std::ptr::null()) } {
        1 => Ok((Now::Taken(moving, sent, None), None)),
        0 => Ok((Now::Ends(moving, sent), of_target(Ready::ReadOrWrite))),
        _ => Err(refused(target).into()),
    }
}

type Waits = (Now, Option<Needs>);

/// Reads the target's number of rows, which must be the same.
fn taken(
    target: &mut Connection,
    moving: MovingLane,
    sent: u64,
    rows: Option<u64>,
    which: Which,
) -> Result<Result<Copied, Waits>, RemoteError> {
    match answered(target, rows, which)? {
        Ok(rows) if rows == sent => Ok(Ok(Copied { rows, bytes: moving.bytes })),
        Ok(rows) => {
            let message = format!("{sent} rows were copied and {rows} arrived");
            Err(RemoteError::of_data(target.shard(), message))
        }
        Err((rows, ready)) => Ok(Err((Now::Taken(moving, sent, rows), of_target(ready)))),
    }
}

/// Returns how many rows a COPY had that has ended. After the last one of a message everything is received.
fn answered(
    session: &mut Connection,
    mut rows: Option<u64>,
    which: Which,
) -> Result<Result<u64, (Option<u64>, Ready)>, RemoteError> {
    loop {
        match at_hand(session)? {
            AtHand::Later(ready) => return Ok(Err((rows, ready))),
            AtHand::Result(None) => return Ok(Ok(rows.unwrap_or(0))),
            AtHand::Result(Some(result)) => match (result.status(), which) {
                (ResultStatus::Failed, _) => return Err(failed(session, result)),
                (ResultStatus::Rows | ResultStatus::Copy, Which::OneOfMany) => {
                    return Ok(Ok(result.affected()));
                }
                (ResultStatus::Rows | ResultStatus::Copy, Which::Last) => rows = Some(result.affected()),
            },
        }
    }
}

/// Returns the error of a message, behind which nothing of it follows, and receives its end: the session can be used
/// further.
fn failed(session: &mut Connection, result: QueryResult) -> RemoteError {
    let error = result.error(session.shard());
    drop(result);
    let _ = done(session, session.timeout, Which::Last);
    error
}

/// Returns the next result, without waiting for it.
fn at_hand(session: &mut Connection) -> Result<AtHand, RemoteError> {
    if !flushed(session)? {
        return Ok(AtHand::Later(Ready::ReadOrWrite));
    }
    // SAFETY: the connection is live.
    if unsafe { pq::PQisBusy(session.raw()) } == 1 {
        return Ok(AtHand::Later(Ready::Read));
    }
    // SAFETY: the connection is live, and the call cannot block.
    let result = unsafe { pq::PQgetResult(session.raw()) };
    Ok(AtHand::Result(std::ptr::NonNull::new(result).map(QueryResult)))
}

fn flushed(session: &mut Connection) -> Result<bool, RemoteError> {
    // SAFETY: the connection is live.
    match unsafe { pq::PQflush(session.raw()) } {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(refused(session)),
    }
}

/// Returns why a session takes no more, as far as its server has reported it.
fn refused(session: &mut Connection) -> RemoteError {
    // SAFETY: the connection is live; a result is only read if this does not block.
    let result = unsafe {
        match pq::PQisBusy(session.raw()) {
            0 => std::ptr::NonNull::new(pq::PQgetResult(session.raw())).map(QueryResult),
            _ => None,
        }
    };
    match result {
        Some(result) if matches!(result.status(), ResultStatus::Failed) => failed(session, result),
        Some(_) | None => session.last_error(),
    }
}
