//! Shards that run a statement at the same time, step by step.

use super::error;
use super::settle::{self, PreparedFate};
use super::shards::{require_beginners_login, require_no_run, require_no_split, ways};
use super::statement;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, Execution, ExecutionState, ShardBackend};
use crate::error::{Failure, SqlState};
use crate::query::opening::Manners;
use crate::query::run::schemas_of;
use crate::query::sessions::QuerySessions;
use crate::remote::RemoteError;
use crate::remote::fan_out::Question;
use crate::remote::result::Rows;
use crate::remote::transaction::{FLUSH, FLUSHED, IDENTITY, Transaction, status};
use std::time::Duration;

/// Objects that are created without a schema go to the first schema of the path, not to the session's temporary
/// schema. The server silently skips a schema that the login may not use. The last row contains the session's
/// identity, and the first schema.
const SETTLE_IN: &str = "SELECT pg_catalog.set_config('search_path', pg_catalog.concat(
        pg_catalog.substr(pg_catalog.current_setting('search_path'), 10), ', pg_temp'), false);
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 14000;
    SELECT pid::pg_catalog.text, EXTRACT(epoch FROM backend_start)::pg_catalog.text, pg_catalog.current_schema() FROM pg_catalog.pg_stat_activity
     WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";

const NO_RIGHT: &str = "Its login there, which shard_logins() lists, lacks a right. Grant it that right. If policies hide rows from it, give it BYPASSRLS, or call shard_execute() with by_policies => true, which leaves these rows as they are.";

/// Begins a transaction. A session that waited for a lock would hold up all others, so the wait is short. The
/// transaction has a number and a WAL record of its own before the statement. It ends on its own if the master stops
/// sending.
fn begin(timeout: Duration) -> String {
    let idle = (timeout + Duration::from_secs(60)).as_millis().min(i32::MAX as u128);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '1s'; SET LOCAL idle_in_transaction_session_timeout = {idle};
         SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text, pg_catalog.pg_logical_emit_message(true, 'shardmaster', '')"
    )
}

/// Returns the open transaction and its server, and makes its commit durable.
pub fn after() -> String {
    format!(
        "SELECT pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, {IDENTITY},
    pg_catalog.set_config('synchronous_commit',
        CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY ('{{off,local}}') THEN 'on'
             ELSE pg_catalog.current_setting('synchronous_commit') END, true)"
    )
}

/// One shard of the wave.
pub struct ExecutionLane {
    pub shard: String,
    backend: Option<ShardBackend>,
    pub rows: u64,
    /// The transaction, if it is to commit.
    pub transaction: Option<Transaction>,
    /// The name of the prepared transaction, in two phases.
    pub gid: Option<String>,
    /// The server's identifier, if it was asked for.
    pub system_identifier: String,
    pub failure: Option<Failure>,
    /// The state that a failure leads to: `Unknown` if the end of the session does not undo the statement.
    pub fails_as: ExecutionState,
}

pub struct Wave {
    pub execution: Execution,
    sessions: QuerySessions,
    pub lanes: Vec<ExecutionLane>,
    timeout: Duration,
}

impl Wave {
    /// Opens the next shards, in two phases all of them. Returns None if none is left.
    pub fn open(id: i64, timeout: Duration) -> Result<Option<Wave>, Failure> {
        let (execution, names, schemas) = Caller::as_owner(|_| {
            let execution = execution::find(id)?;
            let waiting =
                execution::places(id).into_iter().filter(|place| place.state == ExecutionState::Waiting);
            let most = if execution.two_phase { usize::MAX } else { execution.wave };
            let names: Vec<String> = waiting.map(|place| place.shard).take(most).collect();
            let schemas = schemas_of(&execution.keyspace);
            Ok::<_, Failure>((execution, names, schemas))
        })?;
        if names.is_empty() {
            return Ok(None);
        }
        if execution.two_phase {
            require_beginners_login(id)?;
        }
        let sessions = QuerySessions::open(
            ways(&execution, &names, timeout)?,
            &schemas,
            &Manners::of_caller(),
            timeout,
            true,
        )?;
        let lane = |shard| ExecutionLane {
            shard,
            backend: None,
            rows: 0,
            transaction: None,
            gid: None,
            system_identifier: String::new(),
            failure: None,
            fails_as: ExecutionState::Failed,
        };
        let lanes = names.into_iter().map(lane).collect();
        let mut wave = Wave { execution, sessions, lanes, timeout };
        wave.settle_in()?;
        Ok(Some(wave))
    }

    fn settle_in(&mut self) -> Result<(), Failure> {
        let policies = if self.execution.by_policies { "on" } else { "off" };
        let settle_in = format!("SET row_security = {policies}; {SETTLE_IN}");
        let answers = self.ask(Question::of_all(&settle_in))?;
        for (number, answer) in answers.iter().enumerate() {
            let Some(rows) = answer else { continue };
            let username = self.sessions.shards()[number].username.clone();
            let lane = &mut self.lanes[number];
            let cells = cells(rows);
            let pid = cells.first().and_then(|pid| pid.parse().ok());
            let namespace = &self.sessions.shards()[number].shard.namespace;
            match (pid, cells.get(1)) {
                _ if cells.get(2) != Some(namespace) => {
                    lane.failure = Some(error::no_schema_usage(&lane.shard, namespace));
                }
                (Some(pid), Some(start)) => {
                    lane.backend = Some(ShardBackend { username, pid, start: start.clone() });
                }
                _ => lane.failure = Some(RemoteError::unreadable(&lane.shard, "its identity").into()),
            }
        }
        Ok(())
    }

    /// Records the shards as running, and returns the first failure. If one shard cannot begin, none does.
    pub fn write_down(&mut self) -> Result<Option<Failure>, Failure> {
        let (id, two_phase) = (self.execution.id, self.execution.two_phase);
        let is_whole = self.lanes.iter().all(|lane| lane.failure.is_none());
        if is_whole && two_phase {
            for lane in &mut self.lanes {
                lane.gid =
                    Caller::as_owner(|_| execution::will_prepare(id, &lane.shard, &lane.system_identifier));
            }
        }
        self.record(|id, lane| match &lane.backend {
            Some(backend) if is_whole => execution::runs(id, &lane.shard, backend),
            _ => Ok(()),
        })
    }

    /// Asks the shards that have not failed.
    pub fn ask(
        &mut self,
        question: impl Fn(usize) -> Option<Question>,
    ) -> Result<Vec<Option<Rows>>, Failure> {
        let lanes = &self.lanes;
        let answers = self.sessions.ask(|number| {
            lanes.get(number).filter(|lane| lane.failure.is_none()).and_then(|_| question(number))
        })?;
        for (number, failure) in self.sessions.failures() {
            self.lanes[number].failure.get_or_insert(failure);
        }
        Ok(answers)
    }

    /// Records the outcome of each shard, and returns the first failure.
    pub fn record(
        &self,
        good: impl Fn(i64, &ExecutionLane) -> Result<(), Failure>,
    ) -> Result<Option<Failure>, Failure> {
        Caller::as_owner(|_| {
            for lane in &self.lanes {
                match &lane.failure {
                    Some(why) => {
                        execution::ends_badly(self.execution.id, &lane.shard, lane.fails_as, why)?;
                    }
                    None => good(self.execution.id, lane)?,
                }
            }
            Ok(self.lanes.iter().find_map(|lane| lane.failure.clone()))
        })
    }

    /// Runs the statement. A split that was requested before the execution was recorded as running is seen here; one
    /// that is requested later sees that record.
    pub fn run(&mut self) -> Result<Option<Failure>, Failure> {
        self.require_no_splits();
        if self.execution.in_transaction { self.run_in_transaction() } else { self.run_alone() }
    }

    pub fn require_no_splits(&mut self) {
        for lane in &mut self.lanes {
            let free = || require_no_split(&lane.shard).and_then(|()| require_no_run(&lane.shard));
            lane.failure = Caller::as_owner(|_| free()).err();
        }
    }

    fn run_in_transaction(&mut self) -> Result<Option<Failure>, Failure> {
        let opened = self.run_between(&after())?;
        self.flush(&opened)?;
        self.record(|id, lane| match &lane.transaction {
            Some(transaction) => execution::commits(id, &lane.shard, transaction, lane.rows),
            None => Ok(()),
        })
    }

    /// Runs the statement in a transaction that stays open, and returns each shard's answer to the question `after`.
    pub fn run_between(&mut self, after: &str) -> Result<Vec<Vec<String>>, Failure> {
        let begin = begin(self.timeout);
        let begun = self.ask(Question::of_all(&begin))?;
        self.run_statement()?;
        let after = self.ask(Question::of_all(after))?;
        let mut opened = Vec::new();
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let xid = |answers: &[Option<Rows>]| Some(answers.get(number)?.as_ref()?.scalar()?.to_owned());
            if lane.failure.is_none() && (xid(&begun).is_none() || xid(&begun) != xid(&after)) {
                lane.fails_as = ExecutionState::Unknown;
                lane.failure = Some(error::transaction_ended(&lane.shard));
            }
            opened.push(after.get(number).and_then(Option::as_ref).map(cells).unwrap_or_default());
        }
        Ok(opened)
    }

    fn run_statement(&mut self) -> Result<(), Failure> {
        let statement = self.execution.statement.clone();
        let answers = self.ask(|_| Some(Question::Single(statement.clone())))?;
        for (lane, answer) in self.lanes.iter_mut().zip(&answers) {
            lane.rows = answer.as_ref().map_or(0, |rows| rows.affected);
            if let Some(why) =
                lane.failure.as_mut().filter(|why| why.sqlstate == SqlState::INSUFFICIENT_PRIVILEGE)
                && !self.execution.by_policies
            {
                why.hint = Some(NO_RIGHT.to_owned());
            }
        }
        Ok(())
    }

    /// Makes each shard write the WAL with the number of its transaction, through another session, which also checks
    /// that it is on the same server. `opened` contains each shard's transaction and its server.
    fn flush(&mut self, opened: &[Vec<String>]) -> Result<(), Failure> {
        let left: Vec<usize> =
            (0..self.lanes.len()).filter(|number| self.lanes[*number].failure.is_none()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = left.iter().map(|number| self.lanes[*number].shard.clone()).collect();
        let ways = ways(&self.execution, &names, self.timeout)?;
        let mut others = QuerySessions::open(ways, &[], &Manners::of_caller(), self.timeout, true)?;
        let open = |at: usize| opened.get(*left.get(at)?);
        let xid = |at: usize| open(at)?.first().cloned();
        let answers = others.ask(|at| {
            let question = format!("{FLUSH}; SELECT {IDENTITY}, {FLUSHED}, {}", status(&xid(at)?));
            Some(Question::Own(question))
        })?;
        let mut failures: Vec<Option<Failure>> = left.iter().map(|_| None).collect();
        for (at, failure) in others.failures() {
            failures[at] = Some(failure);
        }
        for (at, number) in left.iter().enumerate() {
            let lane = &mut self.lanes[*number];
            let cells = answers.get(at).and_then(Option::as_ref).map(cells).unwrap_or_default();
            match (failures[at].take(), cells.as_slice(), xid(at)) {
                (None, [system, timeline, flushed, status], Some(xid))
                    if status == "in progress"
                        && open(at).and_then(|open| open.get(1..3)) == cells.get(..2) =>
                {
                    let (system_identifier, timeline) = (system.clone(), timeline.clone());
                    lane.transaction =
                        Some(Transaction { xid, system_identifier, timeline, flushed: flushed.clone() });
                }
                (Some(failure), ..) => lane.failure = Some(failure),
                (None, ..) => lane.failure = Some(error::other_server(&lane.shard)),
            }
        }
        Ok(())
    }

    /// Runs a statement that cannot run in a transaction. A lost answer proves nothing. What has committed is flushed
    /// before it counts as done: because of the login's settings, or the statement's own, its commit may not have
    /// waited for that.
    fn run_alone(&mut self) -> Result<Option<Failure>, Failure> {
        let may_run: Vec<bool> = self.lanes.iter().map(|lane| lane.failure.is_none()).collect();
        self.run_statement()?;
        let is_done: Vec<bool> = self.lanes.iter().map(|lane| lane.failure.is_none()).collect();
        self.ask(Question::of_all(FLUSH))?;
        for (number, lane) in self.lanes.iter_mut().enumerate().filter(|(number, _)| may_run[*number]) {
            let state = lane.failure.as_ref().map(|failure| failure.sqlstate.as_str().to_owned());
            let may_have_committed = statement::may_commit(&self.execution.statement);
            if state.is_some_and(|state| is_done[number] || may_have_committed || !is_undone(&state)) {
                lane.fails_as = ExecutionState::Unknown;
            }
        }
        self.record(|id, lane| execution::is_done(id, &lane.shard, Some(lane.rows)))
    }

    /// Makes the shards flush what they have committed, after this command, and asks for the outcomes.
    pub fn ask_outcomes(&mut self, command: &str) -> Result<Vec<Option<Rows>>, Failure> {
        let question = |lane: &ExecutionLane| {
            let status = status(&lane.transaction.as_ref()?.xid);
            Some(format!("{command}{FLUSH}; SELECT {status}"))
        };
        let questions: Vec<Option<String>> = self.lanes.iter().map(question).collect();
        self.ask(Question::of_each(&questions))
    }

    /// Commits on the shards that have run the statement. Code that runs at a commit may have turned off the wait for
    /// the disk, so a second commit waits for it. If a shard's outcome is not heard, it is asked in another session.
    pub fn commit(&mut self) -> Result<Option<Failure>, Failure> {
        let answers = self.ask_outcomes("COMMIT; ")?;
        let mut first = None;
        for (number, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| lane.transaction.is_some()) {
            let status = answers.get(number).and_then(Option::as_ref).and_then(Rows::scalar);
            let fate = match status {
                Some("committed") => Ok(PreparedFate::Committed),
                _ => settle::one(&self.execution, &lane.shard, self.timeout),
            };
            let rolled_back = || error::rolled_back(&lane.shard);
            let why = lane.failure.clone();
            let failure = Caller::as_owner(|_| match fate {
                Ok(PreparedFate::Committed) => {
                    execution::is_done(self.execution.id, &lane.shard, None).map(|()| None)
                }
                Ok(PreparedFate::Aborted) => {
                    let why = why.unwrap_or_else(rolled_back);
                    execution::ends_badly(self.execution.id, &lane.shard, ExecutionState::Failed, &why)
                        .map(|()| Some(why))
                }
                Ok(PreparedFate::Unknown(why)) => {
                    execution::ends_badly(self.execution.id, &lane.shard, ExecutionState::Unknown, &why)
                        .map(|()| Some(why))
                }
                // The state stays as it is: a session that resumes asks again.
                Err(failure) => Ok(Some(why.unwrap_or(failure))),
            })?;
            first = first.or(failure);
        }
        Ok(first)
    }
}

/// Whether a statement that fails with this state outside of a transaction is known to be undone, except for what it
/// has committed itself: these are errors of its data and its syntax, which come before any commit. An error that ends
/// the session may come after it.
fn is_undone(state: &str) -> bool {
    const CLASSES: [&str; 8] = ["0A", "21", "22", "23", "25", "2B", "42", "44"];
    state == "55P03" || CLASSES.iter().any(|class| state.starts_with(class))
}

pub fn cells(rows: &Rows) -> Vec<String> {
    rows.rows.iter().flatten().map(|cell| cell.clone().unwrap_or_default()).collect()
}
