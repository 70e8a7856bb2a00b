//! What a worker keeps of an origin and of each copy between two steps: sessions, and what it knows of them.

use super::conflict;
use super::install::{self, By};
use super::look::End;
use super::task::{Known, Task};
use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::master;
use crate::agent::state::reference::Takes;
use crate::catalog::reference::{Place, Set, State};
use crate::error::Failure;
use crate::remote::Connection;
use crate::server::retry::Backoff;
use std::time::Instant;

/// By how it went last, how long an answer is waited for.
pub fn hastily<R>(patience: &Backoff, work: impl FnOnce() -> R) -> R {
    session::hastily(i32::try_from(patience.failures()).unwrap_or(i32::MAX), work)
}

fn open(set: &Set, place: &Place, end: End, purpose: &str) -> Result<Connection> {
    let known = session::Known { token: &set.token, secret: &set.secret };
    let purpose = format!("reference tables {} {purpose}", set.id);
    session::open_as(&place.shard, &purpose, known, end == End::Copy)
}

fn purpose(end: End) -> &'static str {
    if end == End::Copy { "writer" } else { "control" }
}

/// A session by which the agent's tables on a shard are this worker's.
fn attached(set: &Set, place: &Place, end: End, by: &By<'_>) -> Result<Connection> {
    let mut session = open(set, place, end, purpose(end))?;
    master::check(&mut session, by.identity)?;
    if end == End::Copy {
        conflict::require_remembered(&mut session, set, place)?;
    }
    install::attach(&mut session, set, (place, end), by, Takes::ToFollow)?;
    Ok(session)
}

/// Takes what was dropped off a shard.
pub fn remove(set: &Set, place: &Place, end: End, by: &By<'_>) -> Result<()> {
    let mut session = open(set, place, end, purpose(end))?;
    let is_known = install::attach(&mut session, set, (place, end), by, Takes::ToEnd)?;
    install::remove(&mut session, set, (place, end), is_known)
}

#[derive(Default)]
pub struct Origin {
    /// Reads, one snapshot a step.
    reader: Option<Connection>,
    /// Writes the agent's tables.
    control: Option<Connection>,
    pub patience: Backoff,
}

impl Origin {
    /// The one that reads and the one that writes.
    pub fn sessions(&mut self, task: &Task<'_>) -> Result<(&mut Connection, &mut Connection)> {
        self.control(task.set, task.by)?;
        if self.reader.is_none() {
            let reader = open(task.set, &task.set.origin, End::Origin, "reader")?;
            if let Some(control) = &self.control {
                session::require_one_server(&reader, control)?;
            }
            self.reader = Some(reader);
        }
        match (&mut self.reader, &mut self.control) {
            (Some(reader), Some(control)) => Ok((reader, control)),
            _ => Err(SplitError::Retry("the origin's sessions".into())),
        }
    }

    pub fn control(&mut self, set: &Set, by: &By<'_>) -> Result<&mut Connection> {
        let control = match self.control.take() {
            Some(control) => control,
            None => attached(set, &set.origin, End::Origin, by)?,
        };
        Ok(self.control.insert(control))
    }

    /// After an error nothing is asked of its sessions any more.
    pub fn let_go(&mut self) {
        (self.reader, self.control) = (None, None);
    }

    /// After an error of a copy, which may have left its transaction open.
    pub fn let_go_reader(&mut self) {
        self.reader = None;
    }
}

/// What was last written down of a copy.
pub struct Told {
    pub state: State,
    pub filled: Vec<i32>,
    pub error: Option<String>,
    pub at: Instant,
}

#[derive(Default)]
pub struct Copy {
    session: Option<Connection>,
    known: Known,
    pub patience: Backoff,
    /// Tables that are the origin's own, by their numbers; None: it was not asked yet.
    pub own: Option<Vec<i32>>,
    /// What it stands for, as far as this worker has seen.
    pub snapshot: Option<String>,
    /// What the origin was like when it had all of it, and when that was looked at.
    pub has_all_of: Option<(String, Instant)>,
    pub told: Option<Told>,
    pub failure: Option<Failure>,
}

impl Copy {
    pub fn parts(&mut self, task: &Task<'_>) -> Result<(&mut Connection, &mut Known)> {
        let session = match self.session.take() {
            Some(session) => session,
            None => attached(task.set, task.place, End::Copy, task.by)?,
        };
        Ok((self.session.insert(session), &mut self.known))
    }

    pub fn let_go(&mut self) {
        self.session = None;
        self.has_all_of = None;
    }
}
