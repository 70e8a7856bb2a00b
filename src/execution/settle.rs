//! What has become of a statement whose end was not heard: its shard is asked. A session that still works on it is ended
//! first, so that the answer is the last one.

use super::error::ExecutionError;
use super::shards::ways;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, Backend, Execution, Place, State, Transaction};
use crate::error::Failure;
use crate::query::opening::Manners;
use crate::query::sessions::{Sessions, end_of};
use crate::remote::RemoteError;
use crate::remote::fan_out::Question;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use std::time::{Duration, Instant};

/// Which server this is, and since which take-over: another one may not have what this one has.
pub const IDENTITY: &str = "(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)";

/// A commit writes all that comes before it in the log, the number of the other transaction included: after a crash
/// no other one is given it.
pub const FLUSH: &str = "BEGIN READ WRITE; SET LOCAL synchronous_commit = on;
    SELECT pg_catalog.pg_current_xact_id(), pg_catalog.pg_logical_emit_message(true, 'shardmaster', ''); COMMIT";

/// Of one transaction, for good.
pub enum Fate {
    Committed,
    Aborted,
    Unknown(Failure),
}

/// All of an execution of which it was not heard. Why the first of those is as it was whose shard does not say: the
/// others do not wait for it.
pub fn all(execution: &Execution, places: &[Place], timeout: Duration) -> Result<Option<Failure>, Failure> {
    let mut first = None;
    for place in places.iter().filter(|place| matches!(place.state, State::Running | State::Committing)) {
        let fate = one(execution, &place.shard, timeout);
        let (id, shard) = (execution.id, &place.shard);
        Caller::as_owner(|_| match fate {
            Ok(Fate::Committed) => execution::is_done(id, shard, None),
            Ok(Fate::Aborted) => execution::waits(id, shard),
            Ok(Fate::Unknown(why)) => execution::ends_badly(id, shard, State::Unknown, &why),
            Err(why) => {
                execution::is_held_up(id, shard, &why);
                first.get_or_insert(why);
                Ok(())
            }
        })?;
    }
    Ok(first)
}

/// Before it runs once more where it has failed: whatever session of it is left works for nobody, and might still do it. What
/// it has prepared somebody has to end.
pub fn end_left(execution: &Execution, place: &Place, timeout: Duration) -> Result<(), Failure> {
    if place.backend.is_none() && place.gid.is_none() {
        return Ok(());
    }
    let ways = ways(execution, std::slice::from_ref(&place.shard), timeout)?;
    let mut sessions = Sessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let deadline = Instant::now() + timeout;
    let mut asked = Asked { sessions: &mut sessions, shard: &place.shard, deadline };
    if let Some(backend) = &place.backend {
        asked.end(backend)?;
    }
    let Some(gid) = &place.gid else { return Ok(()) };
    let is_there = format!(
        "SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid OPERATOR(pg_catalog.=) {}",
        literal(gid)
    );
    match asked.ask(is_there)?.rows.is_empty() {
        true => Ok(()),
        false => Err(ExecutionError::Undecided { shard: place.shard.clone(), gid: gid.clone() }.into()),
    }
}

/// As it is written down.
pub fn one(execution: &Execution, shard: &str, timeout: Duration) -> Result<Fate, Failure> {
    let places = Caller::as_owner(|_| execution::places(execution.id));
    let Some(place) = places.into_iter().find(|place| place.shard == shard) else {
        return Ok(Fate::Aborted);
    };
    let ways = ways(execution, &[shard.to_owned()], timeout)?;
    let mut sessions = Sessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let mut asked = Asked { sessions: &mut sessions, shard, deadline: Instant::now() + timeout };
    match (&place.transaction, &place.backend) {
        (Some(transaction), backend) => asked.transaction(transaction, backend.as_ref()),
        (None, Some(backend)) => {
            asked.end(backend)?;
            // No COMMIT was sent.
            match execution.in_transaction {
                true => Ok(Fate::Aborted),
                false => Ok(Fate::Unknown(ExecutionError::Interrupted(shard.to_owned()).into())),
            }
        }
        (None, None) => Ok(Fate::Aborted),
    }
}

struct Asked<'a> {
    sessions: &'a mut Sessions,
    shard: &'a str,
    deadline: Instant,
}

impl Asked<'_> {
    fn ask(&mut self, question: String) -> Result<Rows, Failure> {
        let answers = self.sessions.ask(|_| Some(Question::Own(question.clone())))?;
        let answer = answers.into_iter().next().flatten();
        Ok(answer.ok_or_else(|| RemoteError::unreadable(self.shard, "nothing"))?)
    }

    fn transaction(&mut self, transaction: &Transaction, backend: Option<&Backend>) -> Result<Fate, Failure> {
        let xid = format!("{}::pg_catalog.xid8", literal(&transaction.xid));
        let unknown = |why: ExecutionError| Ok(Fate::Unknown(why.into()));
        loop {
            // Of a number that is not given yet nothing can be asked.
            let found = self.ask(format!(
                "SELECT {IDENTITY}, CASE WHEN {xid} OPERATOR(pg_catalog.<) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
                                         THEN pg_catalog.pg_xact_status({xid}) END,
                        pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), {}) OPERATOR(pg_catalog.<) 0",
                literal(&transaction.flushed)
            ))?;
            let cells: Vec<Option<&str>> = found.rows.iter().flatten().map(Option::as_deref).collect();
            let [Some(system), Some(timeline), status, Some(is_behind)] = cells.as_slice() else {
                return Err(RemoteError::unreadable(self.shard, "what has become of a transaction").into());
            };
            // A disk of before has another log behind it.
            if *system != transaction.system_identifier
                || *timeline != transaction.timeline
                || *is_behind == "t"
            {
                return unknown(ExecutionError::OtherServer(self.shard.to_owned()));
            }
            match status {
                // A commit behind it waits for the disk and for standbys that it may not have waited for.
                Some("committed") => return self.ask(FLUSH.to_owned()).map(|_| Fate::Committed),
                Some("aborted") => return Ok(Fate::Aborted),
                Some("in progress") => {}
                _ => return unknown(ExecutionError::Forgotten(self.shard.to_owned())),
            }
            if let Some(backend) = backend {
                self.end(backend)?;
            }
            self.pause()?;
        }
    }

    /// Returns once there is no such session.
    fn end(&mut self, backend: &Backend) -> Result<(), Failure> {
        let question = end_of(backend);
        while !self.ask(question.clone())?.rows.is_empty() {
            self.pause()?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Failure> {
        if Instant::now() > self.deadline {
            return Err(ExecutionError::InProgress(self.shard.to_owned()).into());
        }
        self.ask("SELECT pg_catalog.pg_sleep(0.02)".to_owned()).map(drop)
    }
}
