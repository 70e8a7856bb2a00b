//! The questions to a session, and how the answer is received: piece by piece, within its time limit and its memory
//! limit.

use super::connection::{Connection, IN_ALL, to_c};
use super::error::RemoteError;
use super::number;
use super::result::{QueryResult, Rows};
use super::wait::Ready;
use pq_sys as pq;
use std::ffi::{CString, c_char, c_int};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The greatest number of statements of one message whose rows are kept.
const MOST_ANSWERS: usize = 8;
/// The limit for statements whose duration depends on the size of their tables.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Connection {
    /// Runs one or several statements without parameters; returns the rows of the last.
    pub fn run(&mut self, sql: &str) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish()
    }

    /// Runs such statements with their own time limit.
    pub fn run_within(&mut self, sql: &str, timeout: Duration) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish_within(timeout)
    }

    /// Runs such statements without a time limit, if their duration depends on the size of their tables. They end when
    /// the caller is cancelled; keepalives notice if the server's host is gone.
    pub fn run_unbounded(&mut self, sql: &str) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish_within(FOR_EVER)
    }

    /// Receives the answers of two sessions to statements without a time limit. Each is received when it comes: a
    /// session whose answer was not received counts as busy, and would get no sign of life while the other one is
    /// waited for.
    pub fn finish_both(&mut self, other: &mut Connection) -> [Result<Rows, RemoteError>; 2] {
        let mut answers = Connection::finish_all(&mut [self, other], FOR_EVER).into_iter();
        std::array::from_fn(|_| answers.next().unwrap_or_else(|| Ok(Rows::default())))
    }

    /// Receives the answers of several sessions, as long as one of them sends something within some time.
    pub fn finish_all(sessions: &mut [&mut Connection], timeout: Duration) -> Vec<Result<Rows, RemoteError>> {
        let mut answers: Vec<_> = sessions.iter().map(|_| Ok(Rows::default())).collect();
        let mut waits_for = vec![Some(Ready::ReadOrWrite); sessions.len()];
        // Occasional pieces must not make the wait endless.
        let all = timeout.saturating_mul(IN_ALL);
        let until = Instant::now().checked_add(all);
        loop {
            for ((session, answer), ready) in sessions.iter_mut().zip(&mut answers).zip(&mut waits_for) {
                if ready.is_some() {
                    *ready = session.go_on_answering(answer).unwrap_or_else(|error| {
                        *answer = Err(error);
                        None
                    });
                }
            }
            let waiting: Vec<(&Connection, Ready)> = sessions
                .iter()
                .zip(&waits_for)
                .filter_map(|(session, ready)| Some((&**session, (*ready)?)))
                .collect();
            if waiting.is_empty() {
                return answers;
            }
            let left = until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            let waited = if left.is_zero() {
                Err(RemoteError::no_answer(waiting[0].0.shard(), all))
            } else {
                Connection::wait_any(&waiting, timeout.min(left))
            };
            if let Err(error) = waited {
                for ((session, answer), ready) in sessions.iter_mut().zip(&mut answers).zip(&waits_for) {
                    if ready.is_some() {
                        *answer = Err(session.give_up(error.clone()));
                    }
                }
                return answers;
            }
        }
    }

    /// Asks each session its question, if there is one for it, all at the same time.
    pub fn ask_all(
        sessions: &mut [&mut Connection],
        questions: &[Option<String>],
        timeout: Duration,
    ) -> Result<Vec<Option<Result<Rows, RemoteError>>>, RemoteError> {
        for (session, question) in sessions.iter_mut().zip(questions) {
            question.as_ref().map_or(Ok(()), |question| session.send(question))?;
        }
        let answers = Connection::finish_all(sessions, timeout).into_iter().zip(questions);
        Ok(answers.map(|(answer, question)| question.as_ref().map(|_| answer)).collect())
    }

    /// Sends statements and returns at once; `finish` receives the answer. So two servers work at the same time.
    pub fn send(&mut self, sql: &str) -> Result<(), RemoteError> {
        self.require_kept()?;
        let sql = to_c(sql);
        // SAFETY: a live connection and a NUL-terminated text.
        let sent = unsafe { pq::PQsendQuery(self.raw(), sql.as_ptr()) };
        if sent == 1 { Ok(()) } else { Err(self.last_error()) }
    }

    /// Runs one statement with text parameters.
    pub fn query(&mut self, sql: &str, params: &[Option<&str>]) -> Result<Rows, RemoteError> {
        self.send_query(sql, params)?;
        self.finish()
    }

    /// Sends such a statement and returns at once, like `send`.
    pub fn send_query(&mut self, sql: &str, params: &[Option<&str>]) -> Result<(), RemoteError> {
        self.require_kept()?;
        let sql = to_c(sql);
        let texts: Vec<Option<CString>> = params.iter().map(|p| p.map(to_c)).collect();
        let values: Vec<*const c_char> =
            texts.iter().map(|t| t.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())).collect();
        // SAFETY: the arrays outlive the call; NULL types, lengths and formats mean inferred types and text.
        let sent = unsafe {
            pq::PQsendQueryParams(
                self.raw(),
                sql.as_ptr(),
                c_int::try_from(values.len()).unwrap_or(0),
                std::ptr::null(),
                values.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                0,
            )
        };
        if sent == 1 { Ok(()) } else { Err(self.last_error()) }
    }

    /// Prepares a statement that a session runs repeatedly, under a name, if it is not prepared yet.
    pub fn prepare(&mut self, name: &'static str, sql: &str) -> Result<(), RemoteError> {
        self.require_kept()?;
        if self.prepared.contains(&name) {
            return Ok(());
        }
        let (c_name, sql) = (to_c(name), to_c(sql));
        // SAFETY: the texts outlive the call; no types are given, so they are inferred.
        let sent =
            unsafe { pq::PQsendPrepare(self.raw(), c_name.as_ptr(), sql.as_ptr(), 0, std::ptr::null()) };
        if sent != 1 {
            return Err(self.last_error());
        }
        self.finish()?;
        self.prepared.push(name);
        Ok(())
    }

    /// Replaces the statement that was prepared under a name.
    pub fn prepare_anew(&mut self, name: &'static str, sql: &str) -> Result<(), RemoteError> {
        if let Some(position) = self.prepared.iter().position(|known| *known == name) {
            self.prepared.remove(position);
            self.run(&format!("DEALLOCATE {name}"))?;
        }
        self.prepare(name, sql)
    }

    /// Runs several statements in one message; returns the rows of each that gives rows. If a server sends more
    /// answers than it was asked for, they are not kept.
    pub fn run_for_each(&mut self, sql: &str) -> Result<Vec<Rows>, RemoteError> {
        self.send(sql)?;
        self.finish_for_each()
    }

    /// Receives the answers to such a message that was sent.
    pub fn finish_for_each(&mut self) -> Result<Vec<Rows>, RemoteError> {
        self.collect(self.timeout, |all: &mut Vec<Rows>, next| {
            if next.has_columns && all.len() < MOST_ANSWERS {
                all.push(next);
            }
        })
    }

    /// Runs statements in one message; returns how many rows each has affected. An error comes with the number of its
    /// statement.
    pub fn run_counted(
        &mut self,
        statements: &[&str],
        timeout: Duration,
    ) -> Result<Vec<u64>, (usize, RemoteError)> {
        let mut done = Vec::new();
        let outcome = self.send(&statements.join("; ")).and_then(|()| {
            self.collect(timeout, |_: &mut (), next| {
                if done.len() < statements.len() {
                    done.push(next.affected);
                }
            })
        });
        match outcome {
            Ok(()) => Ok(done),
            Err(error) => Err((done.len(), error)),
        }
    }

    /// Receives the answer to what was sent: the rows of the last statement, or its error.
    pub fn finish(&mut self) -> Result<Rows, RemoteError> {
        self.finish_within(self.timeout)
    }

    fn finish_within(&mut self, timeout: Duration) -> Result<Rows, RemoteError> {
        self.collect(timeout, |last, next| *last = next)
    }

    /// Returns what is kept of the answers to the statements of a message, or their error.
    pub(super) fn collect<T: Default>(
        &mut self,
        timeout: Duration,
        mut keep: impl FnMut(&mut T, Rows),
    ) -> Result<T, RemoteError> {
        self.in_all(timeout, |session| {
            let mut kept = Ok(T::default());
            while let Some(result) = session.next_result(timeout)? {
                let next = result.answer(session.shard())?;
                kept = kept.and_then(|mut kept| {
                    keep(&mut kept, next?);
                    Ok(kept)
                });
            }
            kept
        })
    }

    /// Adds the part of the answer that has arrived to `last`, without waiting. Returns what to wait for next on the
    /// socket, or None if the answer is complete.
    pub(super) fn go_on_answering(
        &mut self,
        last: &mut Result<Rows, RemoteError>,
    ) -> Result<Option<Ready>, RemoteError> {
        self.take_in()?;
        // SAFETY: the connection is live; PQgetResult is called only when it cannot block.
        if unsafe { pq::PQflush(self.raw()) } == 1 {
            return Ok(Some(Ready::ReadOrWrite));
        }
        // SAFETY: as above.
        while unsafe { pq::PQisBusy(self.raw()) } == 0 {
            // SAFETY: as above.
            let Some(result) = NonNull::new(unsafe { pq::PQgetResult(self.raw()) }) else {
                return Ok(None);
            };
            let answer = QueryResult(result).answer(self.shard())?;
            if last.is_ok() {
                *last = answer;
            }
        }
        Ok(Some(Ready::Read))
    }

    /// Returns the next result of the running statement, or None if there are no more.
    pub(super) fn next_result(&mut self, timeout: Duration) -> Result<Option<QueryResult>, RemoteError> {
        // The time is checked first, since results that have arrived already involve no wait.
        if let Err(error) = self.require_time() {
            return Err(self.give_up(error));
        }
        loop {
            // SAFETY: the connection is live; PQgetResult is called only when it cannot block.
            let unsent = match unsafe { pq::PQflush(self.raw()) } {
                0 => false,
                1 => true,
                _ => return Err(self.last_error()),
            };
            // SAFETY: as above.
            if !unsent && unsafe { pq::PQisBusy(self.raw()) } == 0 {
                // SAFETY: as above.
                let result = unsafe { pq::PQgetResult(self.raw()) };
                return Ok(NonNull::new(result).map(QueryResult));
            }
            let ready = if unsent { Ready::ReadOrWrite } else { Ready::Read };
            if let Err(error) = self.wait_ready(ready, timeout) {
                return Err(self.give_up(error));
            }
            self.take_in()?;
        }
    }

    /// Reads the part of an answer that has arrived, up to the memory limit.
    fn take_in(&mut self) -> Result<(), RemoteError> {
        let began = Instant::now();
        self.consume()?;
        self.bound_answer(began)
    }

    /// Returns the number that a query gives.
    pub fn count(&mut self, what: &str, sql: &str) -> Result<i64, RemoteError> {
        let rows = self.run(sql)?;
        number::count(self.shard(), what, rows.scalar())
    }
}
