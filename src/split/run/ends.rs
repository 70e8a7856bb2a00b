//! How a worker brings a completed split to its end: as requested, without its source, or reversed.

use super::Worker;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::epoch::Tenure;
use crate::catalog::reverse_split::{self, WayBack};
use crate::catalog::split_state::row::SplitState;
use crate::server::txn::{transaction, try_transaction};
use crate::split::end::{before, finish, lost_shard, ready};
use crate::split::engine::Engine;
use crate::split::{record, reverse};
use std::time::{Duration, Instant};

/// The time for which a check of both sides is trusted.
const SOON: Duration = Duration::from_secs(10);

impl Worker {
    /// Compares both sides, as far as they were not compared; the operator may still reverse the split.
    pub(super) fn prove(&mut self, state: &SplitState) -> Result<Duration> {
        let request = transaction(|| record::finish_request(self.id));
        if self.lingers_since.take().is_some() {
            self.go_on(request.accepts)?;
        }
        if self.engine.is_none() {
            self.ready = None;
            let tenure = self.take_plan()?;
            if self.leave(&tenure)? {
                return Ok(Duration::ZERO);
            }
            if finish::is_entered(&tenure, request.version)? {
                ready::go_on(self.id)?;
                return Ok(Duration::ZERO);
            }
            if request.accepts {
                ready::require_accepted(&tenure, &request)?;
            }
        }
        if !request.accepts {
            // A problem of a table is reported before its rows are read. A comparison may take hours.
            if self.ready.is_none_or(|since| !state.verifies && since.elapsed() > SOON) {
                let Engine { tenure, sessions, tables, .. } = self.attached(state)?;
                before::require_ready(&tenure.plan, sessions, tables, &request)?;
                self.ready = Some(Instant::now());
            }
            if state.verifies {
                return self.verify(state);
            }
            let Engine { tenure, sessions, tables, .. } = self.attached(state)?;
            ready::require_proven(&tenure.plan, &mut sessions.target, tables)?;
        }
        ready::go_on(self.id)?;
        Ok(Duration::ZERO)
    }

    /// Continues with the sessions of the cutover, after they have checked both sides again. A finish that accepts
    /// missing rows, or a reversed split, begins with its own sessions.
    fn go_on(&mut self, accepts: bool) -> Result<()> {
        let Some(mut engine) = self.engine.take().filter(|_| !accepts) else { return Ok(()) };
        if try_transaction(|| reverse_split::of(self.id))?.is_some_and(|back| back.is_decided()) {
            return Ok(());
        }
        engine.look_anew()?;
        self.engine = Some(engine);
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<Duration> {
        let request = transaction(|| record::finish_request(self.id));
        // The sessions that have shown that all is ready are used further.
        let engine =
            self.engine.take().filter(|_| self.ready.is_some() && !request.is_purged && !request.accepts);
        let tenure = match &engine {
            Some(engine) => engine.tenure.clone(),
            None => self.take_plan()?,
        };
        if self.leave(&tenure)? {
            return Ok(Duration::ZERO);
        }
        reverse::remove(&tenure, None)?;
        finish::run(&tenure, engine, &request)?;
        Ok(Duration::ZERO)
    }

    /// Whether the split was reversed: then it ends here.
    pub(super) fn leave(&self, tenure: &Tenure) -> Result<bool> {
        let back = try_transaction(|| reverse_split::of(self.id))?;
        let Some(back) = back.filter(WayBack::is_decided) else { return Ok(false) };
        reverse::leave(tenure, &back)?;
        Ok(true)
    }

    pub(super) fn finish_without_source(&mut self, state: &SplitState) -> Result<Duration> {
        self.engine = None;
        let tenure = self.take_plan()?;
        if self.leave(&tenure)? {
            return Ok(Duration::ZERO);
        }
        reverse::remove(&tenure, Some(Side::Source))?;
        lost_shard::finish_without_source(&tenure, state.version_cutover.unwrap_or_default())?;
        Ok(Duration::ZERO)
    }
}
