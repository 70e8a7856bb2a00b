//! What a session is asked, and how the answer is taken in: piece by piece, within its time and
//! up to the memory that one may take.

use super::connection::{Connection, IN_ALL, to_c};
use super::error::RemoteError;
use super::number;
use super::result::{QueryResult, Rows};
use super::wait::Ready;
use pq_sys as pq;
use std::ffi::{CString, c_char, c_int};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Statements of one message whose rows are kept.
const MOST_ANSWERS: usize = 8;
/// What takes as long as its tables are big.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Connection {
    /// Runs one or several statements without parameters; the rows of the last.
    pub fn run(&mut self, sql: &str) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish()
    }

    /// The same for a statement that may take longer than others.
    pub fn run_within(&mut self, sql: &str, timeout: Duration) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish_within(timeout)
    }

    /// The same for one that takes as long as its tables are big. It ends with the caller's
    /// cancel; that the server's host is gone, keepalives tell.
    pub fn run_unbounded(&mut self, sql: &str) -> Result<Rows, RemoteError> {
        self.send(sql)?;
        self.finish_within(FOR_EVER)
    }

    /// The answers of two sessions to such ones. Each is taken in when it comes: a session whose
    /// answer nobody has taken counts as one at work, and would be given no sign of life while the
    /// other is waited for.
    pub fn finish_both(&mut self, other: &mut Connection) -> [Result<Rows, RemoteError>; 2] {
        let mut answers = Connection::finish_all(&mut [self, other], FOR_EVER).into_iter();
        std::array::from_fn(|_| answers.next().unwrap_or_else(|| Ok(Rows::default())))
    }

    /// The same of several, as long as one of them is heard of within some time.
    pub fn finish_all(sessions: &mut [&mut Connection], timeout: Duration) -> Vec<Result<Rows, RemoteError>> {
        let mut answers: Vec<_> = sessions.iter().map(|_| Ok(Rows::default())).collect();
        let mut waits_for = vec![Some(Ready::ReadOrWrite); sessions.len()];
        // A piece now and then does not make a wait one without an end.
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

    /// Sends statements and returns at once; `finish` takes the answer. So two
    /// servers work at the same time.
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

    /// Sends it and returns at once, as `send` does.
    pub fn send_query(&mut self, sql: &str, params: &[Option<&str>]) -> Result<(), RemoteError> {
        self.require_kept()?;
        let sql = to_c(sql);
        let texts: Vec<Option<CString>> = params.iter().map(|p| p.map(to_c)).collect();
        let values: Vec<*const c_char> =
            texts.iter().map(|t| t.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())).collect();
        // SAFETY: the arrays outlive the call; NULL types, lengths and formats mean
        // inferred types and text.
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

    /// One that a session runs again and again, under a name: the first time.
    pub fn prepare(&mut self, name: &'static str, sql: &str) -> Result<(), RemoteError> {
        self.require_kept()?;
        if self.prepared.contains(&name) {
            return Ok(());
        }
        let (c_name, sql) = (to_c(name), to_c(sql));
        // SAFETY: the texts outlive the call; no types: they are inferred.
        let sent =
            unsafe { pq::PQsendPrepare(self.raw(), c_name.as_ptr(), sql.as_ptr(), 0, std::ptr::null()) };
        if sent != 1 {
            return Err(self.last_error());
        }
        self.finish()?;
        self.prepared.push(name);
        Ok(())
    }

    /// Another one in the place of what was prepared under its name.
    pub fn prepare_anew(&mut self, name: &'static str, sql: &str) -> Result<(), RemoteError> {
        if let Some(position) = self.prepared.iter().position(|known| *known == name) {
            self.prepared.remove(position);
            self.run(&format!("DEALLOCATE {name}"))?;
        }
        self.prepare(name, sql)
    }

    /// Several statements in one message; the rows of each that gives rows. Of a server that sends more
    /// answers than it was asked for no more are kept.
    pub fn run_for_each(&mut self, sql: &str) -> Result<Vec<Rows>, RemoteError> {
        self.send(sql)?;
        self.finish_for_each()
    }

    /// The same of what was sent.
    pub fn finish_for_each(&mut self) -> Result<Vec<Rows>, RemoteError> {
        self.collect(self.timeout, |all: &mut Vec<Rows>, next| {
            if next.has_columns && all.len() < MOST_ANSWERS {
                all.push(next);
            }
        })
    }

    /// Statements in one message; how many rows each has touched. An error comes with the number of its statement.
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

    /// The answer to what was sent: the rows of the last statement, or its error.
    pub fn finish(&mut self) -> Result<Rows, RemoteError> {
        self.finish_within(self.timeout)
    }

    fn finish_within(&mut self, timeout: Duration) -> Result<Rows, RemoteError> {
        self.collect(timeout, |last, next| *last = next)
    }

    /// What is kept of the answers to the statements of a message, or their error.
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

    /// Adds the part of the answer that has arrived to `last`, without waiting. Returns what
    /// to wait for next on the socket; None: the answer is complete.
    pub(super) fn go_on_answering(
        &mut self,
        last: &mut Result<Rows, RemoteError>,
    ) -> Result<Option<Ready>, RemoteError> {
        self.take_in()?;
        // SAFETY: a live connection; PQgetResult is called only
        // when it cannot block.
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

    /// The next result of the running statement; None when there are no more.
    pub(super) fn next_result(&mut self, timeout: Duration) -> Result<Option<QueryResult>, RemoteError> {
        // Results that have come already are waited for by nothing.
        if let Err(error) = self.require_time() {
            return Err(self.give_up(error));
        }
        loop {
            // SAFETY: a live connection; PQgetResult is called
            // only when it cannot block.
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

    /// Reads the part of an answer that has arrived, up to the memory that one may take.
    fn take_in(&mut self) -> Result<(), RemoteError> {
        let began = Instant::now();
        self.consume()?;
        self.bound_answer(began)
    }

    /// The number that a query gives.
    pub fn count(&mut self, what: &str, sql: &str) -> Result<i64, RemoteError> {
        let rows = self.run(sql)?;
        number::count(self.shard(), what, rows.scalar())
    }
}
