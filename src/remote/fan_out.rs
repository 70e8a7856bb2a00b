//! Several shards at once: one process opens, asks and reads their sessions at the same time. Rows are passed on as
//! they arrive, so none are collected, however many there are.

use super::connection::Connection;
use super::error::RemoteError;
use super::flood::Received;
use super::hosts::{Current, Hosts};
use super::params::Params;
use super::result::{QueryResult, ResultStatus, Rows};
use super::wait::{self, Ready, Woken};
use crate::guc;
use pq_sys as pq;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The memory that a row takes in this process in addition while it arrives.
const BESIDE: u64 = 64 << 20;

/// One shard of several.
struct ShardLane {
    shard: String,
    stage: FanOutStage,
    /// These include files that are read while it connects.
    params: Params,
    /// How long it may still be waited for.
    left: Duration,
    /// The current host of the connection, and how long it may stay silent before the next one is tried.
    host: (Current, Duration),
    /// What has arrived of the current row. `None` if none was waited for since the last one.
    received: Option<Received>,
}

enum FanOutStage {
    Connecting(Box<Connection>, Ready),
    Idle(Box<Connection>),
    /// What it waits for. `None` if the answer is complete.
    Asked(Box<Connection>, Option<Ready>, Rows),
    /// What it waits for. `None` if not all that has arrived was read.
    Streams(Box<Connection>, Option<Ready>),
    /// The reason, which is returned once.
    Gone(Option<RemoteError>),
}

/// What a shard is asked.
pub enum Question {
    /// Statements without any text of other authors.
    Own(String),
    /// A single statement: the server accepts no second one after it.
    Single(String),
}

impl Question {
    /// Asks all the same.
    pub fn of_all(text: &str) -> impl Fn(usize) -> Option<Question> {
        move |_| Some(Question::Own(text.to_owned()))
    }

    /// Asks each its own question, if it has one.
    pub fn of_each(texts: &[Option<String>]) -> impl Fn(usize) -> Option<Question> {
        move |number| texts.get(number).cloned().flatten().map(Question::Own)
    }
}

/// The next result of all streams.
pub enum NextRow {
    Row(ShardRow),
    /// There are no more rows; this is a row without values that has their columns.
    Columns(ShardRow),
    End,
    Failed(RemoteError),
}

/// A row, as text.
pub struct ShardRow(QueryResult);

impl ShardRow {
    pub fn columns(&self) -> usize {
        // SAFETY: the result is live.
        usize::try_from(unsafe { pq::PQnfields(self.raw()) }).unwrap_or(0)
    }

    /// Returns a value as it was received. Returns None if it is NULL.
    pub fn value(&self, column: usize) -> Option<&CStr> {
        let column = i32::try_from(column).ok()?;
        // SAFETY: the result is live and has one row; libpq returns NULL for a column that it does not have. The text
        // ends with a NUL and lives as long as the result.
        unsafe {
            (pq::PQgetisnull(self.raw(), 0, column) == 0)
                .then(|| CStr::from_ptr(pq::PQgetvalue(self.raw(), 0, column)))
        }
    }

    /// Returns a column's name on the shard.
    pub fn name(&self, column: usize) -> Option<&CStr> {
        let column = i32::try_from(column).ok()?;
        // SAFETY: the result is live; the name is NULL if there is no such column.
        unsafe {
            let name = pq::PQfname(self.raw(), column);
            (!name.is_null()).then(|| CStr::from_ptr(name))
        }
    }

    /// Returns the number of a column's type on its server.
    pub fn type_number(&self, column: usize) -> u32 {
        let column = i32::try_from(column).unwrap_or(i32::MAX);
        // SAFETY: the result is live; the number is 0 if there is no such column.
        unsafe { pq::PQftype(self.raw(), column) }
    }

    fn bytes(&self) -> u64 {
        let length = |column: usize| {
            let column = i32::try_from(column).unwrap_or(i32::MAX);
            // SAFETY: as above.
            u64::try_from(unsafe { pq::PQgetlength(self.raw(), 0, column) }).unwrap_or(0)
        };
        (0..self.columns()).map(length).sum()
    }

    fn raw(&self) -> *mut pq::PGresult {
        self.0.0.as_ptr()
    }
}

/// Shards that are asked together.
pub struct FanOut {
    lanes: Vec<ShardLane>,
    /// How long each of them is waited for, in total.
    longest: Duration,
    /// The lane whose rows are read next.
    at: usize,
}

impl FanOut {
    /// Begins to connect to all.
    pub fn start(shards: Vec<(String, Result<Params, RemoteError>)>, longest: Duration) -> FanOut {
        let lanes =
            shards.into_iter().map(|(shard, params)| ShardLane::start(shard, params, longest)).collect();
        FanOut { lanes, longest, at: 0 }
    }

    /// Returns PQserverVersion of an open session.
    pub fn version(&self, lane: usize) -> Option<i32> {
        match &self.lanes.get(lane)?.stage {
            FanOutStage::Idle(session) => Some(session.server_version()),
            _ => None,
        }
    }

    /// Waits until all sessions are open, or have failed.
    pub fn connect(&mut self) {
        let mut since = Instant::now();
        while self.lanes.iter().any(|lane| matches!(lane.stage, FanOutStage::Connecting(..))) {
            self.wait(&mut since);
        }
    }

    /// Asks each lane its question, if it has one; returns the rows of the last statement of each. A lane that fails
    /// is gone: `failures` returns the reason.
    pub fn ask(&mut self, questions: Vec<Option<Question>>) -> Vec<Option<Rows>> {
        for (lane, question) in self.lanes.iter_mut().zip(questions) {
            lane.ask(question);
        }
        let mut since = Instant::now();
        while self
            .lanes
            .iter()
            .any(|lane| matches!(lane.stage, FanOutStage::Asked(_, ready, _) if ready.is_some()))
        {
            self.wait(&mut since);
        }
        self.lanes.iter_mut().map(ShardLane::take_answer).collect()
    }

    /// Ends a session whose reason is known to the caller.
    pub fn leave(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.stage = FanOutStage::Gone(None);
        }
    }

    /// Returns why lanes are gone, for those whose reason was not returned yet.
    pub fn failures(&mut self) -> Vec<(usize, RemoteError)> {
        let reason = |(number, lane): (usize, &mut ShardLane)| match &mut lane.stage {
            FanOutStage::Gone(reason) => reason.take().map(|error| (number, error)),
            _ => None,
        };
        self.lanes.iter_mut().enumerate().filter_map(reason).collect()
    }

    /// Sends each remaining lane its statement, whose rows `next` returns.
    pub fn stream(&mut self, statements: &[String]) {
        for (lane, statement) in self.lanes.iter_mut().zip(statements) {
            lane.stream(statement);
        }
    }

    /// Returns the next row of any lane, or that a lane has no more. Returns None if no lane has anything left.
    pub fn next(&mut self) -> Option<(usize, NextRow)> {
        // The time is read late: this costs as much as a short row.
        let mut since = None;
        loop {
            let (count, longest) = (self.lanes.len(), self.longest);
            for number in (self.at..count).chain(0..self.at) {
                let Some(next) = self.lanes.get_mut(number).and_then(|lane| lane.next(longest)) else {
                    continue;
                };
                self.at = number;
                return Some((number, next));
            }
            if !self.wait(since.get_or_insert_with(Instant::now)) {
                return None;
            }
        }
    }

    /// Waits for lanes that something is expected from, and continues with what has arrived. Returns false if there is
    /// none. `since`: when the last such wait was over. The caller's work with rows takes time, too, possibly without
    /// end.
    fn wait(&mut self, since: &mut Instant) -> bool {
        let waiting: Vec<(usize, i32, Ready)> =
            self.lanes.iter().enumerate().filter_map(|(number, lane)| lane.waits_for(number)).collect();
        let sockets: Vec<(i32, Ready)> = waiting.iter().map(|(_, socket, ready)| (*socket, *ready)).collect();
        let Some(least) =
            waiting.iter().filter_map(|(number, ..)| Some(self.lanes.get(*number)?.longest())).min()
        else {
            return false;
        };
        let woken = wait::for_each(&sockets, Instant::now() + least);
        let waited = since.elapsed();
        *since += waited;
        let ready = match woken {
            Woken::Sockets(positions) => positions,
            Woken::Latch | Woken::TimedOut => Vec::new(),
        };
        for (position, (number, ..)) in waiting.iter().enumerate() {
            if let Some(lane) = self.lanes.get_mut(*number) {
                lane.has_waited(waited, self.longest, ready.contains(&position));
            }
        }
        true
    }
}

impl ShardLane {
    fn start(shard: String, params: Result<Params, RemoteError>, longest: Duration) -> ShardLane {
        let started = params.and_then(|params| {
            let started = Connection::start(&shard, &params.with(&[]), longest);
            started.map_err(|error| error.concealing(&params)).map(|session| (session, params))
        });
        let (stage, params) = match started {
            // libpq requires behaving as if the first poll had returned "writing".
            Ok((session, params)) => (FanOutStage::Connecting(Box::new(session), Ready::ReadOrWrite), params),
            Err(error) => (FanOutStage::Gone(Some(error)), Params::default()),
        };
        let mut lane = ShardLane {
            shard,
            stage,
            params,
            left: longest,
            host: (Current::default(), longest),
            received: None,
        };
        lane.note_host();
        lane
    }

    /// Notes the current host: each has a time limit of its own, as in `Connection::open`.
    fn note_host(&mut self) {
        let FanOutStage::Connecting(session, _) = &self.stage else { return };
        // SAFETY: the connection is live.
        let (hosts, current) = unsafe { (Hosts::of(session.raw()), Current::of(session.raw())) };
        if current != self.host.0 {
            let most = guc::remote_timeout();
            self.host = (current, hosts.timeout.map_or(most, |own| own.min(most)));
        }
    }

    /// Leaves out a silent host, if there are others.
    fn leave_host(&mut self) -> Result<(), RemoteError> {
        let FanOutStage::Connecting(session, _) = &self.stage else { return Ok(()) };
        // SAFETY: the connection is live.
        let (hosts, current) = unsafe { (Hosts::of(session.raw()), Current::of(session.raw())) };
        let Some(others) = hosts.without(&current) else {
            self.host.1 = self.left;
            return Ok(());
        };
        let session = Connection::start(&self.shard, &self.params.with(&others), self.left)?;
        self.stage = FanOutStage::Connecting(Box::new(session), Ready::ReadOrWrite);
        self.note_host();
        Ok(())
    }

    fn longest(&self) -> Duration {
        match &self.stage {
            FanOutStage::Connecting(..) => self.left.min(self.host.1),
            _ => self.left,
        }
    }

    fn waits_for(&self, number: usize) -> Option<(usize, i32, Ready)> {
        let (session, ready) = match &self.stage {
            FanOutStage::Connecting(session, ready) => (session, Some(*ready)),
            FanOutStage::Asked(session, ready, _) | FanOutStage::Streams(session, ready) => (session, *ready),
            FanOutStage::Idle(_) | FanOutStage::Gone(_) => return None,
        };
        Some((number, session.socket(), ready?))
    }

    /// Ends a lane whose time is over, unless something expected has arrived: notices are no answer.
    fn has_waited(&mut self, waited: Duration, longest: Duration, is_ready: bool) {
        self.left = self.left.saturating_sub(waited);
        if is_ready {
            if let Err(error) = self.go_on() {
                self.stage = FanOutStage::Gone(Some(error));
            } else if self.is_to_answer() && self.left.is_zero() {
                self.stage = FanOutStage::Gone(Some(RemoteError::no_answer_to_caller(&self.shard, longest)));
            }
        } else if self.left.is_zero() {
            self.stage = FanOutStage::Gone(Some(RemoteError::no_answer_to_caller(&self.shard, longest)));
        } else if matches!(self.stage, FanOutStage::Connecting(..)) {
            self.host.1 = self.host.1.saturating_sub(waited);
            if self.host.1.is_zero()
                && let Err(error) = self.leave_host()
            {
                self.stage = FanOutStage::Gone(Some(error.concealing(&self.params)));
            }
        }
    }

    /// Whether something is waited for that is not a row of a stream.
    fn is_to_answer(&self) -> bool {
        matches!(self.stage, FanOutStage::Connecting(..) | FanOutStage::Asked(_, Some(_), _))
    }

    /// Continues now that the socket is ready.
    fn go_on(&mut self) -> Result<(), RemoteError> {
        match std::mem::replace(&mut self.stage, FanOutStage::Gone(None)) {
            FanOutStage::Connecting(mut session, _) => {
                let next = session.go_on_connecting().map_err(|error| error.concealing(&self.params))?;
                self.stage = match next {
                    Some(ready) => {
                        self.stage = FanOutStage::Connecting(session, ready);
                        self.note_host();
                        return Ok(());
                    }
                    None => {
                        self.params = Params::default();
                        session.will_run_what_others_write();
                        FanOutStage::Idle(session)
                    }
                };
            }
            FanOutStage::Asked(mut session, _, rows) => {
                let mut answer = Ok(rows);
                let ready = session.go_on_answering(&mut answer)?;
                self.stage = FanOutStage::Asked(session, ready, answer?);
            }
            FanOutStage::Streams(mut session, _) => {
                self.take_in(&mut session)?;
                self.stage = FanOutStage::Streams(session, None);
            }
            other => self.stage = other,
        }
        Ok(())
    }

    /// Reads what has arrived of a row, up to the permitted length.
    fn take_in(&mut self, session: &mut Connection) -> Result<(), RemoteError> {
        let received = self.received.get_or_insert_default();
        let began = Instant::now();
        session.consume()?;
        let most = guc::max_row_bytes();
        if received.is_too_much(began, most.saturating_add(BESIDE)) {
            return Err(RemoteError::row_too_long(&self.shard, most));
        }
        Ok(())
    }

    fn ask(&mut self, question: Option<Question>) {
        let Some(question) = question else { return };
        self.stage = match std::mem::replace(&mut self.stage, FanOutStage::Gone(None)) {
            FanOutStage::Idle(mut session) => {
                let sent = match &question {
                    Question::Own(text) => session.send(text),
                    Question::Single(text) => session.send_query(text, &[]),
                };
                match sent {
                    Ok(()) => FanOutStage::Asked(session, Some(Ready::ReadOrWrite), Rows::default()),
                    Err(error) => FanOutStage::Gone(Some(error)),
                }
            }
            other => other,
        };
    }

    fn take_answer(&mut self) -> Option<Rows> {
        match std::mem::replace(&mut self.stage, FanOutStage::Gone(None)) {
            FanOutStage::Asked(session, None, rows) => {
                self.stage = FanOutStage::Idle(session);
                Some(rows)
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    fn stream(&mut self, statement: &str) {
        self.stage = match std::mem::replace(&mut self.stage, FanOutStage::Gone(None)) {
            FanOutStage::Idle(mut session) => match session.send_query(statement, &[]) {
                Ok(()) => {
                    // SAFETY: the connection is live, with a statement sent and nothing of its answer received.
                    unsafe { pq::PQsetSingleRowMode(session.raw()) };
                    FanOutStage::Streams(session, Some(Ready::ReadOrWrite))
                }
                Err(error) => FanOutStage::Gone(Some(error)),
            },
            other => other,
        };
    }

    /// Returns what has arrived already, or None if nothing has.
    fn next(&mut self, longest: Duration) -> Option<NextRow> {
        match &mut self.stage {
            FanOutStage::Gone(reason) => reason.take().map(NextRow::Failed),
            FanOutStage::Streams(session, ready @ None) => match next_of(session) {
                Ok(Arrived::Row(row)) => {
                    self.received = None;
                    Some(NextRow::Row(row))
                }
                Ok(Arrived::Columns(row)) => Some(NextRow::Columns(row)),
                Ok(Arrived::Wait(_)) if self.left.is_zero() => {
                    self.stage = FanOutStage::Gone(None);
                    Some(NextRow::Failed(RemoteError::no_answer_to_caller(&self.shard, longest)))
                }
                Ok(Arrived::Wait(what)) => {
                    *ready = Some(what);
                    None
                }
                Ok(Arrived::End) => {
                    self.stage = FanOutStage::Gone(None);
                    Some(NextRow::End)
                }
                Err(error) => {
                    self.stage = FanOutStage::Gone(None);
                    Some(NextRow::Failed(error))
                }
            },
            _ => None,
        }
    }
}

enum Arrived {
    Row(ShardRow),
    Columns(ShardRow),
    Wait(Ready),
    End,
}

fn next_of(session: &mut Connection) -> Result<Arrived, RemoteError> {
    // SAFETY: the connection is live.
    match unsafe { pq::PQflush(session.raw()) } {
        0 => {}
        1 => return Ok(Arrived::Wait(Ready::ReadOrWrite)),
        _ => return Err(session.last_error()),
    }
    loop {
        // SAFETY: as above.
        if unsafe { pq::PQisBusy(session.raw()) } != 0 {
            return Ok(Arrived::Wait(Ready::Read));
        }
        // SAFETY: as above; PQgetResult is called only when it cannot block.
        let Some(result) = NonNull::new(unsafe { pq::PQgetResult(session.raw()) }) else {
            return Ok(Arrived::End);
        };
        let result = QueryResult(result);
        match result.status() {
            ResultStatus::Failed => return Err(result.error(session.shard())),
            ResultStatus::Copy => return Err(RemoteError::unreadable(session.shard(), "a COPY")),
            ResultStatus::Rows => {}
        }
        // SAFETY: the result is live.
        match unsafe { pq::PQresultStatus(result.0.as_ptr()) } {
            pq::ExecStatusType::PGRES_SINGLE_TUPLE => {}
            pq::ExecStatusType::PGRES_TUPLES_OK => return Ok(Arrived::Columns(ShardRow(result))),
            _ => continue,
        }
        let row = ShardRow(result);
        let bytes = row.bytes();
        if bytes > guc::max_row_bytes() {
            return Err(RemoteError::row_too_long(session.shard(), guc::max_row_bytes()));
        }
        return Ok(Arrived::Row(row));
    }
}
