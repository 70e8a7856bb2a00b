//! Sessions of a role's logins on several shards, which are asked at the same time.

use super::login::{Entrance, LoginWay};
use super::opening::{self, Manners};
use crate::agent::credential;
use crate::catalog::execution::ShardBackend;
use crate::error::{Failure, SqlState};
use crate::remote::RemoteError;
use crate::remote::fan_out::{FanOut, Question};
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use std::time::Duration;

/// Returns a query that asks a session to end; it gives a row for as long as the session exists.
pub fn end_of(backend: &ShardBackend) -> String {
    // The begin of other users' sessions is hidden: ending one is refused to a role without the right.
    format!(
        "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
          WHERE pid OPERATOR(pg_catalog.=) {} AND usename::pg_catalog.text OPERATOR(pg_catalog.=) {}
            AND (backend_start IS NULL OR EXTRACT(epoch FROM backend_start)::pg_catalog.text OPERATOR(pg_catalog.=) {})",
        backend.pid,
        literal(&backend.username),
        literal(&backend.start)
    )
}

/// Encodings that take every character, or any bytes.
const WIDE: [&str; 2] = ["UTF8", "SQL_ASCII"];

pub struct QuerySessions {
    shards: Vec<Entrance>,
    pub(super) fan: FanOut,
    /// A failed shard is left out, and is no error.
    reports: bool,
    /// Shards whose session may not be used, if this was not reported yet.
    refused: Vec<(usize, Failure)>,
    /// Those whose encoding may lack characters.
    narrow: Vec<usize>,
}

impl QuerySessions {
    /// Opens one on each shard, within a total time. Unqualified names are searched first among the shard's tables,
    /// then in `schemas`.
    pub fn open(
        ways: Vec<LoginWay>,
        schemas: &[String],
        manners: &Manners,
        timeout: Duration,
        reports: bool,
    ) -> Result<QuerySessions, Failure> {
        let mut sessions = QuerySessions::connect(ways, timeout, reports);
        sessions.require_answers()?;
        sessions.begin(schemas, manners)?;
        match sessions.refused.pop() {
            Some((_, why)) => Err(why),
            None => Ok(sessions),
        }
    }

    /// Opens them; a shard that is not the expected one is also left out, without an error.
    pub fn open_each(
        ways: Vec<LoginWay>,
        manners: &Manners,
        timeout: Duration,
    ) -> Result<QuerySessions, Failure> {
        let mut sessions = QuerySessions::connect(ways, timeout, true);
        sessions.begin(&[], manners)?;
        Ok(sessions)
    }

    fn connect(ways: Vec<LoginWay>, timeout: Duration, reports: bool) -> QuerySessions {
        let (mut shards, mut targets) = (Vec::new(), Vec::new());
        for (entrance, params) in ways {
            targets.push((entrance.shard.shard_key.clone(), params));
            shards.push(entrance);
        }
        let fan = FanOut::start(targets, timeout);
        let mut sessions = QuerySessions { shards, fan, reports, refused: Vec::new(), narrow: Vec::new() };
        sessions.fan.connect();
        sessions
    }

    /// Begins the sessions. Refused ones are closed.
    fn begin(&mut self, schemas: &[String], manners: &Manners) -> Result<(), Failure> {
        let messages: Vec<Option<String>> = self
            .shards
            .iter()
            .enumerate()
            .map(|(number, entrance)| {
                let own = std::iter::once(entrance.shard.namespace.clone());
                let schemas: Vec<String> = own.chain(schemas.iter().cloned()).collect();
                let version = self.fan.version(number)?;
                Some(opening::message(entrance, &schemas, manners, version))
            })
            .collect();
        let answers = self.ask(Question::of_each(&messages))?;
        for (number, (entrance, answer)) in self.shards.iter().zip(&answers).enumerate() {
            let Some(answer) = answer else { continue };
            match opening::require(entrance, answer) {
                Ok(encoding) if WIDE.contains(&encoding.as_str()) => {}
                Ok(_) => self.narrow.push(number),
                Err(why) => {
                    self.fan.leave(number);
                    self.refused.push((number, why));
                }
            }
        }
        // The first one is returned first.
        self.refused.reverse();
        Ok(())
    }

    /// Asks each shard its question, if it has one.
    pub fn ask(
        &mut self,
        question: impl Fn(usize) -> Option<Question>,
    ) -> Result<Vec<Option<Rows>>, Failure> {
        let questions = (0..self.shards.len()).map(question).collect();
        let answers = self.fan.ask(questions);
        self.require_answers()?;
        Ok(answers)
    }

    /// Checks for failed shards: the first one is an error, unless failures are reported.
    fn require_answers(&mut self) -> Result<(), Failure> {
        if self.reports {
            return Ok(());
        }
        match self.fan.failures().into_iter().next() {
            Some((number, error)) => Err(self.failure(number, error).1),
            None => Ok(()),
        }
    }

    pub(super) fn failure(&self, number: usize, error: RemoteError) -> (String, Failure) {
        let shard = error.shard.clone();
        let error = match self.shards.get(number) {
            // An error that refuses a session has no SQLSTATE.
            Some(entrance) if error.sqlstate.is_none() => credential::refused(&entrance.shard, error),
            _ => error,
        };
        let failure = Failure::from(error);
        if failure.sqlstate.as_str() == "22P05" && failure.hint.is_none() {
            let hint = "This shard's encoding lacks a letter of a literal. Compare the literal only by =, <>, IN, ANY or LIKE, where no row can have it, or name the other shards.";
            return (shard, failure.hint(hint));
        }
        if failure.sqlstate != SqlState::INSUFFICIENT_PRIVILEGE || failure.hint.is_some() {
            return (shard, failure);
        }
        let hint = "Its login there, which shard_logins() lists, lacks a right. Grant it what it needs to read on that shard.";
        (shard, failure.hint(hint))
    }

    /// Returns shards that have failed since the last call, if failures are reported: which one, and why.
    pub fn failures(&mut self) -> Vec<(usize, Failure)> {
        let refused = std::mem::take(&mut self.refused);
        let found = self.fan.failures();
        let reason = |(number, error): (usize, RemoteError)| (number, self.failure(number, error).1);
        refused.into_iter().chain(found.into_iter().map(reason)).collect()
    }

    /// Whether a shard's encoding may lack characters.
    pub(super) fn is_narrow(&self, number: usize) -> bool {
        self.narrow.contains(&number)
    }

    pub fn shards(&self) -> &[Entrance] {
        &self.shards
    }

    pub(super) fn reports(&self) -> bool {
        self.reports
    }
}
