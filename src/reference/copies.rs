//! What a worker keeps of an origin and of each copy between two steps: sessions, and what it knows of them.

use super::conflict;
use super::install::{self, ReferenceWorker};
use super::task::{FitTables, Task};
use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::master;
use crate::agent::state::reference::Takes;
use crate::catalog::reference::{ReferencePlace, ReferenceSet, ReferenceState};
use crate::error::Failure;
use crate::reference::probe::SetEnd;
use crate::remote::Connection;
use crate::server::retry::Backoff;
use std::time::Instant;

/// Runs work that waits for an answer for a time that depends on earlier failures.
pub fn with_connect_timeout<R>(backoff: &Backoff, work: impl FnOnce() -> R) -> R {
    session::with_connect_timeout(i32::try_from(backoff.failures()).unwrap_or(i32::MAX), work)
}

fn open(set: &ReferenceSet, place: &ReferencePlace, end: SetEnd, purpose: &str) -> Result<Connection> {
    let known = session::SessionSecret { token: &set.token, secret: &set.secret };
    let purpose = format!("reference tables {} {purpose}", set.id);
    session::open_as(&place.shard, &purpose, known, end == SetEnd::Copy)
}

fn purpose(end: SetEnd) -> &'static str {
    if end == SetEnd::Copy { "writer" } else { "control" }
}

/// Opens a session by which the agent's tables on a shard are this worker's.
fn attached(
    set: &ReferenceSet,
    place: &ReferencePlace,
    end: SetEnd,
    by: &ReferenceWorker<'_>,
) -> Result<Connection> {
    let mut session = open(set, place, end, purpose(end))?;
    master::check(&mut session, by.identity)?;
    if end == SetEnd::Copy {
        conflict::require_remembered(&mut session, set, place)?;
    }
    install::attach(&mut session, set, place, end, by, Takes::ToFollow)?;
    Ok(session)
}

/// Removes dropped tables from a shard.
pub fn remove(
    set: &ReferenceSet,
    place: &ReferencePlace,
    end: SetEnd,
    by: &ReferenceWorker<'_>,
) -> Result<()> {
    let mut session = open(set, place, end, purpose(end))?;
    let is_known = install::attach(&mut session, set, place, end, by, Takes::ToEnd)?;
    install::remove(&mut session, set, place, end, is_known)
}

#[derive(Default)]
pub struct ReferenceOrigin {
    /// Reads, one snapshot a step.
    reader: Option<Connection>,
    /// Writes the agent's tables.
    control: Option<Connection>,
    pub backoff: Backoff,
}

impl ReferenceOrigin {
    /// Returns the session that reads and the one that writes.
    pub fn sessions(&mut self, task: &Task<'_>) -> Result<(&mut Connection, &mut Connection)> {
        self.control(task.set, task.by)?;
        if self.reader.is_none() {
            let reader = open(task.set, &task.set.origin, SetEnd::Origin, "reader")?;
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

    pub fn control(&mut self, set: &ReferenceSet, by: &ReferenceWorker<'_>) -> Result<&mut Connection> {
        let control = match self.control.take() {
            Some(control) => control,
            None => attached(set, &set.origin, SetEnd::Origin, by)?,
        };
        Ok(self.control.insert(control))
    }

    /// Drops its sessions after an error.
    pub fn let_go(&mut self) {
        (self.reader, self.control) = (None, None);
    }

    /// Drops the reading session after an error of a copy, which may have left its transaction open.
    pub fn let_go_reader(&mut self) {
        self.reader = None;
    }
}

/// What was last recorded of a copy.
pub struct LastReport {
    pub state: ReferenceState,
    pub filled: Vec<i32>,
    pub error: Option<String>,
    pub at: Instant,
}

#[derive(Default)]
pub struct ReferenceCopy {
    session: Option<Connection>,
    known: FitTables,
    pub backoff: Backoff,
    /// Tables that are the origin's own, by their numbers. `None` if it was not asked yet.
    pub own: Option<Vec<i32>>,
    /// The snapshot that it stands for, as far as this worker has seen.
    pub snapshot: Option<String>,
    /// The origin's state when the copy had all of it, and when that was read.
    pub has_all_of: Option<(String, Instant)>,
    pub told: Option<LastReport>,
    pub failure: Option<Failure>,
}

impl ReferenceCopy {
    pub fn parts(&mut self, task: &Task<'_>) -> Result<(&mut Connection, &mut FitTables)> {
        let session = match self.session.take() {
            Some(session) => session,
            None => attached(task.set, task.place, SetEnd::Copy, task.by)?,
        };
        Ok((self.session.insert(session), &mut self.known))
    }

    /// Drops its session after an error, with what was read of its tables: rights may be granted meanwhile, which
    /// changes no table.
    pub fn let_go(&mut self) {
        self.session = None;
        self.known = FitTables::default();
        self.has_all_of = None;
    }
}
