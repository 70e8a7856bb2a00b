//! Finds the outcome of a statement whose end was not heard: its shard is asked. A session that still runs it is ended
//! first, so that the answer is final.

use super::error;
use super::shards::ways;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, Execution, ExecutionPlace, ExecutionState, ShardBackend};
use crate::error::Failure;
use crate::query::opening::Manners;
use crate::query::sessions::{QuerySessions, end_of};
use crate::remote::RemoteError;
use crate::remote::fan_out::Question;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::transaction::{FLUSH, Transaction, TransactionFate as Said};
use std::time::{Duration, Instant};

/// The final outcome of one transaction.
pub enum PreparedFate {
    Committed,
    Aborted,
    Unknown(Failure),
}

/// Settles all shards of an execution whose outcomes are unknown. Returns the reason for the first shard that does not
/// tell: the others do not wait for it.
pub fn all(
    execution: &Execution,
    places: &[ExecutionPlace],
    timeout: Duration,
) -> Result<Option<Failure>, Failure> {
    let mut first = None;
    for place in places
        .iter()
        .filter(|place| matches!(place.state, ExecutionState::Running | ExecutionState::Committing))
    {
        let fate = one(execution, &place.shard, timeout);
        let (id, shard) = (execution.id, &place.shard);
        Caller::as_owner(|_| match fate {
            Ok(PreparedFate::Committed) => execution::is_done(id, shard, None),
            Ok(PreparedFate::Aborted) => execution::waits(id, shard),
            Ok(PreparedFate::Unknown(why)) => execution::ends_badly(id, shard, ExecutionState::Unknown, &why),
            Err(why) => {
                execution::is_held_up(id, shard, &why);
                first.get_or_insert(why);
                Ok(())
            }
        })?;
    }
    Ok(first)
}

/// Prepares a shard for another run after a failure: a remaining session works for nobody, and could still run the
/// statement, so it is ended. If it has prepared a transaction, somebody has to end that.
pub fn end_left(execution: &Execution, place: &ExecutionPlace, timeout: Duration) -> Result<(), Failure> {
    if place.backend.is_none() && place.gid.is_none() {
        return Ok(());
    }
    let ways = ways(execution, std::slice::from_ref(&place.shard), timeout)?;
    let mut sessions = QuerySessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let deadline = Instant::now() + timeout;
    let mut asked = SettleQuestion { sessions: &mut sessions, shard: &place.shard, deadline };
    if let Some(backend) = &place.backend {
        asked.end(backend)?;
    }
    let Some(gid) = &place.gid else { return Ok(()) };
    let is_there = format!(
        "SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid OPERATOR(pg_catalog.=) {}",
        literal(gid)
    );
    if asked.ask(is_there)?.rows.is_empty() {
        Ok(())
    } else {
        Err(error::master_may_lack_decision(&place.shard, gid))
    }
}

/// Finds the outcome on one shard, by its records.
pub fn one(execution: &Execution, shard: &str, timeout: Duration) -> Result<PreparedFate, Failure> {
    let places = Caller::as_owner(|_| execution::places(execution.id));
    let Some(place) = places.into_iter().find(|place| place.shard == shard) else {
        return Ok(PreparedFate::Aborted);
    };
    let ways = ways(execution, &[shard.to_owned()], timeout)?;
    let mut sessions = QuerySessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let mut asked = SettleQuestion { sessions: &mut sessions, shard, deadline: Instant::now() + timeout };
    match (&place.transaction, &place.backend) {
        (Some(transaction), backend) => asked.transaction(transaction, backend.as_ref()),
        (None, Some(backend)) => {
            asked.end(backend)?;
            // No COMMIT was sent.
            if execution.in_transaction {
                Ok(PreparedFate::Aborted)
            } else {
                Ok(PreparedFate::Unknown(error::interrupted(shard)))
            }
        }
        (None, None) => Ok(PreparedFate::Aborted),
    }
}

struct SettleQuestion<'a> {
    sessions: &'a mut QuerySessions,
    shard: &'a str,
    deadline: Instant,
}

impl SettleQuestion<'_> {
    fn ask(&mut self, question: String) -> Result<Rows, Failure> {
        let answers = self.sessions.ask(Question::of_all(&question))?;
        let answer = answers.into_iter().next().flatten();
        Ok(answer.ok_or_else(|| RemoteError::unreadable(self.shard, "nothing"))?)
    }

    fn transaction(
        &mut self,
        transaction: &Transaction,
        backend: Option<&ShardBackend>,
    ) -> Result<PreparedFate, Failure> {
        loop {
            let found = self.ask(format!("SELECT {}", transaction.columns()))?;
            let cells = found.cells();
            let Some(fate) = transaction.fate(&cells) else {
                return Err(RemoteError::unreadable(self.shard, "the outcome of a transaction").into());
            };
            match fate {
                // The commit may not have waited for the disk and for standbys; a second commit does.
                Said::Committed => return self.ask(FLUSH.to_owned()).map(|_| PreparedFate::Committed),
                Said::Aborted => return Ok(PreparedFate::Aborted),
                Said::InProgress => {}
                Said::NotGiven | Said::Forgotten => {
                    return Ok(PreparedFate::Unknown(error::forgotten(self.shard)));
                }
                Said::OtherServer => return Ok(PreparedFate::Unknown(error::other_server(self.shard))),
            }
            if let Some(backend) = backend {
                self.end(backend)?;
            }
            self.pause()?;
        }
    }

    /// Ends a session, and returns once it is gone.
    fn end(&mut self, backend: &ShardBackend) -> Result<(), Failure> {
        let question = end_of(backend);
        while !self.ask(question.clone())?.rows.is_empty() {
            self.pause()?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Failure> {
        if Instant::now() > self.deadline {
            return Err(error::in_progress(self.shard));
        }
        self.ask("SELECT pg_catalog.pg_sleep(0.02)".to_owned()).map(drop)
    }
}
