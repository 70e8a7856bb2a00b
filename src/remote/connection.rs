//! A connection to a shard: non-blocking libpq under the server's latch.

use super::alive::{self, Sign};
use super::cancel;
use super::error::RemoteError;
use super::flood::{self, FloodRoom, Received};
use super::wait::{self, Ready};
use crate::remote::interest;
use crate::server::wait::{StatusScope, report, status_scope};
use pq_sys as pq;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A shard that does not answer for this long is named where an operator looks.
const SILENCE: Duration = Duration::from_secs(5);

/// A multiple of the timeout that limits the whole answer: occasional pieces, or only notices, must not make the wait
/// endless.
pub(super) const IN_ALL: u32 = 10;

/// The status of a worker while it waits for an answer; the earlier status returns afterwards.
#[derive(Default)]
struct Silence {
    before: Option<StatusScope>,
    told: Duration,
}

impl Silence {
    fn tell(&mut self, shards: impl Fn() -> String, since: Duration) {
        if since < self.told + SILENCE {
            return;
        }
        self.told = since;
        let before = self.before.get_or_insert_with(status_scope).text();
        report(&format!("an answer of shard {} for {} s: {before}", shards(), since.as_secs()));
    }
}

/// An open session on a shard.
pub struct Connection {
    raw: NonNull<pq::PGconn>,
    /// The shard's key, for messages.
    shard: String,
    pub(super) timeout: Duration,
    /// The time past which no answer is waited for, whatever the timeout is.
    deadline: Option<Instant>,
    /// The limit of the answer that is waited for: its deadline and its total time.
    in_all: Option<(Instant, Duration)>,
    /// When it was last checked whether its answers are still wanted.
    asked: Cell<Instant>,
    /// The names of statements that the server has prepared.
    pub(super) prepared: Vec<&'static str>,
    /// Why the session was closed: its answer did not come in time.
    lost: Option<RemoteError>,
    received: Received,
    pub(super) rows: FloodRoom,
    /// How often its transaction gets a sign of life while others are waited for.
    kept_alive: Option<Duration>,
    /// The running server that it is on, as reported when the session began.
    instance: Option<String>,
    /// Whether code of others may have told it not to notice that the client is gone.
    runs_what_others_write: bool,
}

impl Connection {
    /// Begins to connect. `go_on_connecting` does the rest, whenever the socket is ready.
    pub(super) fn start(
        shard: &str,
        params: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Connection, RemoteError> {
        // SAFETY: this counts the descriptor with the server's own; Drop releases it.
        if !unsafe { pgrx::pg_sys::AcquireExternalFD() } {
            return Err(RemoteError::connection(shard, "too many open files for another connection"));
        }
        // They include secrets, of which libpq makes copies of its own.
        let texts: Vec<(CString, Zeroizing<CString>)> =
            params.iter().map(|(k, v)| (to_c(k), Zeroizing::new(to_c(v)))).collect();
        let mut keywords: Vec<*const c_char> = texts.iter().map(|(k, _)| k.as_ptr()).collect();
        let mut values: Vec<*const c_char> = texts.iter().map(|(_, v)| v.as_ptr()).collect();
        keywords.push(std::ptr::null());
        values.push(std::ptr::null());
        // SAFETY: both arrays are NULL-terminated and outlive the call.
        let raw = unsafe { pq::PQconnectStartParams(keywords.as_ptr(), values.as_ptr(), 1) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: the descriptor was counted above.
            unsafe { ReleaseExternalFD() };
            return Err(RemoteError::connection(shard, "out of memory"));
        };
        let connection = Connection {
            raw,
            shard: shard.to_owned(),
            timeout,
            deadline: None,
            in_all: None,
            asked: Cell::new(Instant::now()),
            prepared: Vec::new(),
            lost: None,
            received: Received::default(),
            rows: FloodRoom::default(),
            kept_alive: None,
            instance: None,
            runs_what_others_write: false,
        };
        // This is set before the first message, since libpq itself would write notices into this server's log.
        // SAFETY: the connection is live; the function lives as long as the library.
        unsafe {
            pq::PQsetNoticeProcessor(connection.raw.as_ptr(), Some(ignore_notice), std::ptr::null_mut());
        }
        // SAFETY: the connection is live.
        match unsafe { pq::PQstatus(connection.raw.as_ptr()) } {
            pq::ConnStatusType::CONNECTION_BAD => Err(connection.last_error()),
            _ => Ok(connection),
        }
    }

    /// Makes the next move of connecting, once the socket is ready. Returns what to wait for then, or None if the
    /// session is open.
    pub(super) fn go_on_connecting(&mut self) -> Result<Option<Ready>, RemoteError> {
        let began = Instant::now();
        // SAFETY: raw is a live connection that this owns.
        let polled = unsafe { pq::PQconnectPoll(self.raw.as_ptr()) };
        self.bound_answer(began)?;
        match polled {
            pq::PostgresPollingStatusType::PGRES_POLLING_OK => {
                // SAFETY: as above.
                unsafe { pq::PQsetnonblocking(self.raw.as_ptr(), 1) };
                self.require_silence()?;
                Ok(None)
            }
            pq::PostgresPollingStatusType::PGRES_POLLING_READING => Ok(Some(Ready::Read)),
            pq::PostgresPollingStatusType::PGRES_POLLING_WRITING => Ok(Some(Ready::ReadOrWrite)),
            _ => Err(self.last_error()),
        }
    }

    pub fn will_run_what_others_write(&mut self) {
        self.runs_what_others_write = true;
    }

    pub fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    pub fn set_instance(&mut self, instance: Option<String>) {
        self.instance = instance;
    }

    pub fn shard(&self) -> &str {
        &self.shard
    }

    /// Bounds every wait from here on by a deadline, or only by the timeouts if None. With a deadline nothing keeps
    /// its transaction alive: it must end automatically.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        match self.kept_alive {
            Some(every) if deadline.is_none() => alive::keep(self.raw, every),
            _ => alive::forget(self.raw),
        }
    }

    /// Keeps a session alive whose server ends a transaction that receives nothing: empty queries are sent at this
    /// interval while others are waited for.
    pub fn keep_alive(&mut self, every: Duration) {
        self.kept_alive = Some(every);
        alive::keep(self.raw, every);
    }

    /// Returns the time at which something ends that begins now with this timeout.
    fn until(&self, timeout: Duration) -> Instant {
        let by_timeout = Instant::now() + timeout;
        let by_deadline = self.deadline.map_or(by_timeout, |deadline| deadline.min(by_timeout));
        self.in_all.map_or(by_deadline, |(until, _)| until.min(by_deadline))
    }

    /// Limits the answers that a body waits for to a multiple of the timeout, from the beginning of the first one to
    /// the end of the last one.
    pub(super) fn in_all<T>(
        &mut self,
        timeout: Duration,
        body: impl FnOnce(&mut Connection) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let all = timeout.saturating_mul(IN_ALL);
        self.in_all = Instant::now().checked_add(all).map(|until| (until, all));
        let outcome = body(self);
        self.in_all = None;
        outcome
    }

    /// Checks the time limits, so that an endless answer prolongs no wait, and checks whether the answer is still
    /// wanted.
    pub(super) fn require_time(&self) -> Result<(), RemoteError> {
        let now = Instant::now();
        match (self.in_all, self.deadline) {
            (Some((until, all)), _) if now >= until => Err(RemoteError::no_answer(&self.shard, all)),
            (_, Some(deadline)) if now >= deadline => {
                Err(RemoteError::no_answer(&self.shard, Duration::ZERO))
            }
            _ => self.require_wanted(now),
        }
    }

    pub(super) fn require_wanted(&self, now: Instant) -> Result<(), RemoteError> {
        if now.duration_since(self.asked.get()) < interest::ASK {
            return Ok(());
        }
        self.asked.set(now);
        if interest::is_wanted(&self.shard) { Ok(()) } else { Err(RemoteError::not_wanted(&self.shard)) }
    }

    /// Waits until the socket is ready, and reports a long wait. A shard that stays silent is an error.
    pub(super) fn wait_ready(&self, ready: Ready, timeout: Duration) -> Result<(), RemoteError> {
        Connection::wait_any(&[(self, ready)], timeout)
    }

    /// Waits until one of several sockets is ready.
    pub(super) fn wait_any(sessions: &[(&Connection, Ready)], timeout: Duration) -> Result<(), RemoteError> {
        sessions.iter().try_for_each(|(session, _)| session.require_time())?;
        let began = Instant::now();
        alive::sign();
        let Some(until) = sessions.iter().map(|(session, _)| session.until(timeout)).min() else {
            return Ok(());
        };
        let sockets: Vec<(i32, Ready)> =
            sessions.iter().map(|(session, ready)| (session.socket(), *ready)).collect();
        let shards = || {
            let mut names: Vec<String> =
                sessions.iter().map(|(session, _)| format!("\"{}\"", session.shard)).collect();
            names.dedup();
            names.join(" and ")
        };
        let mut silence = Silence::default();
        while !wait::for_any(&sockets, until.min(Instant::now() + interest::ASK)) {
            alive::sign();
            if Instant::now() >= until {
                let shard = sessions.first().map_or("", |(session, _)| &session.shard);
                return Err(RemoteError::no_answer(shard, waited(began, timeout)));
            }
            if let Some((lost, _)) = sessions.iter().find(|(session, _)| !interest::is_wanted(&session.shard))
            {
                return Err(RemoteError::not_wanted(&lost.shard));
            }
            silence.tell(shards, began.elapsed());
        }
        Ok(())
    }

    /// Lets its transaction end automatically if nothing comes, also while this worker works elsewhere.
    pub fn end_by_itself(&mut self) {
        self.kept_alive = None;
        alive::forget(self.raw);
    }

    /// Returns PQserverVersion: 150020 for 15.20.
    pub fn server_version(&self) -> i32 {
        // SAFETY: the connection is live.
        unsafe { pq::PQserverVersion(self.raw.as_ptr()) }
    }

    /// Returns the role that has logged in.
    pub fn user(&self) -> String {
        // SAFETY: the connection is live.
        let user = unsafe { pq::PQuser(self.raw.as_ptr()) };
        if user.is_null() {
            return String::new();
        }
        // SAFETY: this is libpq's own text, which lives as long as the connection.
        unsafe { CStr::from_ptr(user) }.to_string_lossy().into_owned()
    }

    /// Returns the encoding of its database, as the server has reported when the session began.
    pub fn server_encoding(&self) -> Option<&str> {
        // SAFETY: the connection is live, and the name ends with a zero.
        let encoding = unsafe { pq::PQparameterStatus(self.raw.as_ptr(), c"server_encoding".as_ptr()) };
        // SAFETY: this is libpq's own text, which lives until it receives the next answer.
        (!encoding.is_null()).then(|| unsafe { CStr::from_ptr(encoding) })?.to_str().ok()
    }

    /// Requires a usable session. One whose answer did not come in time still waits for it: no other question may be
    /// asked, and the error stays the first one. An answer to a sign of life is received first, within time and memory
    /// limits like any other.
    pub(super) fn require_kept(&mut self) -> Result<(), RemoteError> {
        let (began, until) = (Instant::now(), self.until(self.timeout));
        while self.lost.is_none() {
            let problem = match alive::answer(self.raw) {
                Sign::Answered => break,
                Sign::Wrong => RemoteError::wrong_sign(&self.shard, alive::MOST),
                // An endless answer must not prolong the wait.
                Sign::Asked(_) if Instant::now() >= until => {
                    RemoteError::no_answer(&self.shard, waited(began, self.timeout))
                }
                Sign::Asked(_) => match self.require_wanted(Instant::now()) {
                    Err(error) => error,
                    Ok(()) => {
                        let until = until.min(Instant::now() + interest::ASK);
                        wait::for_socket(self.socket(), Ready::Read, until);
                        continue;
                    }
                },
            };
            return Err(self.give_up(problem));
        }
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Cancels a statement that is no longer wanted. From PostgreSQL 14 on its server notices that the session is
    /// gone.
    fn cancel(&self) {
        // SAFETY: the connection is live; the request is made of it, used once and freed. It is sent over a connection
        // of its own.
        unsafe {
            let runs =
                pq::PQtransactionStatus(self.raw.as_ptr()) == pq::PGTransactionStatusType::PQTRANS_ACTIVE;
            let notices = self.server_version() >= 140_000 && !self.runs_what_others_write;
            if !runs || self.lost.is_some() || notices {
                return;
            }
            if let Some(request) = NonNull::new(pq::PQgetCancel(self.raw.as_ptr())) {
                cancel::send(request, self.runs_what_others_write);
            }
        }
    }

    /// Closes the session's socket. Its server notices this, and stops working for it.
    pub(super) fn give_up(&mut self, error: RemoteError) -> RemoteError {
        unsafe extern "C" {
            fn shutdown(socket: c_int, how: c_int) -> c_int;
        }
        const BOTH_WAYS: c_int = 2;
        // SAFETY: this is a system call on the socket of a live connection; libpq finds it closed.
        unsafe { shutdown(self.socket(), BOTH_WAYS) };
        self.lost = Some(error.clone());
        error
    }

    /// Whether a transaction is open, including one that an error has aborted.
    pub fn is_in_transaction(&self) -> bool {
        // SAFETY: the connection is live.
        let status = unsafe { pq::PQtransactionStatus(self.raw.as_ptr()) };
        matches!(
            status,
            pq::PGTransactionStatusType::PQTRANS_INTRANS | pq::PGTransactionStatusType::PQTRANS_INERROR
        )
    }

    pub(super) fn socket(&self) -> i32 {
        // SAFETY: the connection is live.
        unsafe { pq::PQsocket(self.raw.as_ptr()) }
    }

    pub(super) fn raw(&self) -> *mut pq::PGconn {
        self.raw.as_ptr()
    }

    /// Reads what has arrived. A notification, which no session asks for, closes the session.
    pub(super) fn consume(&mut self) -> Result<(), RemoteError> {
        // SAFETY: the connection is live.
        if unsafe { pq::PQconsumeInput(self.raw.as_ptr()) } == 0 {
            return Err(self.last_error());
        }
        self.require_silence()
    }

    fn require_silence(&mut self) -> Result<(), RemoteError> {
        // SAFETY: the connection is live and open.
        if unsafe { flood::is_notified(self.raw.as_ptr()) } {
            return Err(self.give_up(RemoteError::notified(&self.shard)));
        }
        Ok(())
    }

    /// Closes the session if more has arrived than its answers may hold.
    pub(super) fn bound_answer(&mut self, began: Instant) -> Result<(), RemoteError> {
        let most = flood::MOST.saturating_add(self.rows.room());
        if self.received.is_too_much(began, most) {
            return Err(self.give_up(RemoteError::flooded(&self.shard, flood::MOST)));
        }
        Ok(())
    }

    /// Returns the connection's own error, if no result has one.
    pub(super) fn last_error(&self) -> RemoteError {
        // SAFETY: the connection is live; the text is copied.
        let message = unsafe { CStr::from_ptr(pq::PQerrorMessage(self.raw.as_ptr())) };
        let message = message.to_string_lossy();
        let message = if message.trim().is_empty() { "connection lost" } else { &message };
        RemoteError::connection(&self.shard, message)
    }
}

unsafe extern "C" {
    fn ReleaseExternalFD();
}

impl Drop for Connection {
    fn drop(&mut self) {
        alive::remove(self.raw);
        // SAFETY: this is the last use of the connection. PQfinish does not call the server that this runs in;
        // ReleaseExternalFD only counts and raises nothing. It is called directly: a client's session survives an
        // error, and could otherwise open no more connections.
        unsafe {
            self.cancel();
            pq::PQfinish(self.raw.as_ptr());
            ReleaseExternalFD();
        }
    }
}

/// Returns how long an answer was waited for: if a deadline came before the timeout, to the tenth of a second.
fn waited(began: Instant, timeout: Duration) -> Duration {
    let tenths = began.elapsed().as_millis() / 100;
    Duration::from_millis(u64::try_from(tenths * 100).unwrap_or(0)).min(timeout)
}

/// Returns a C string, truncated at the first NUL: the server would not accept one.
pub(super) fn to_c(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// Ignores notices of a shard, which do not belong into this server's log.
unsafe extern "C" fn ignore_notice(_arg: *mut c_void, _message: *const c_char) {}
