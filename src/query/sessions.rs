//! Sessions of a role's logins on several shards, which are asked beside each other.

use super::login::{Entrance, Way};
use super::opening::{self, Manners};
use crate::agent::credential;
use crate::error::Failure;
use crate::remote::RemoteError;
use crate::remote::fan_out::{FanOut, Question};
use crate::remote::result::Rows;
use std::time::Duration;

pub struct Sessions {
    shards: Vec<Entrance>,
    pub(super) fan: FanOut,
    /// A shard that fails is left out, and no error.
    reports: bool,
}

impl Sessions {
    /// Opens one on each shard, for that long in all. Unqualified names are those of the shard's tables first, then of
    /// `schemas`.
    pub fn open(
        ways: Vec<Way>,
        schemas: &[String],
        manners: &Manners,
        timeout: Duration,
        reports: bool,
    ) -> Result<Sessions, Failure> {
        let (mut shards, mut targets) = (Vec::new(), Vec::new());
        for (entrance, params) in ways {
            targets.push((entrance.shard.shard_key.clone(), params));
            shards.push(entrance);
        }
        let mut sessions = Sessions { shards, fan: FanOut::start(targets, timeout), reports };
        sessions.fan.connect();
        sessions.require_answers()?;
        sessions.begin(schemas, manners)?;
        Ok(sessions)
    }

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
        let answers = self.ask(|number| messages.get(number).cloned().flatten().map(Question::Own))?;
        for (entrance, answer) in self.shards.iter().zip(&answers) {
            if let Some(answer) = answer {
                opening::require(entrance, answer)?;
            }
        }
        Ok(())
    }

    /// Asks each shard its question, of those that have one.
    pub fn ask(
        &mut self,
        question: impl Fn(usize) -> Option<Question>,
    ) -> Result<Vec<Option<Rows>>, Failure> {
        let questions = (0..self.shards.len()).map(question).collect();
        let answers = self.fan.ask(questions);
        self.require_answers()?;
        Ok(answers)
    }

    /// Of those that have failed: the first one is an error, unless they are to be reported.
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
            // What refuses a session says no SQLSTATE.
            Some(entrance) if error.sqlstate.is_none() => credential::refused(&entrance.shard, error),
            _ => error,
        };
        (shard, error.into())
    }

    /// Of those that have failed since it was asked last, where failures are reported: which one, why, and whether the
    /// server itself has said so.
    pub fn failures(&mut self) -> Vec<(usize, Failure, bool)> {
        let found = self.fan.failures();
        let reason = |(number, error): (usize, RemoteError)| {
            let is_said = error.sqlstate.is_some();
            (number, self.failure(number, error).1, is_said)
        };
        found.into_iter().map(reason).collect()
    }

    pub fn shards(&self) -> &[Entrance] {
        &self.shards
    }

    pub(super) fn reports(&self) -> bool {
        self.reports
    }
}
