//! Copying rows and following changes, step by step, and what the worker does between two steps.

use super::pace::{pause_of_copy, renew_lease, rest_by_rate};
use super::{APPLYING, Worker};
use crate::agent::error::Result;
use crate::catalog::cutover_request;
use crate::catalog::split_state::row::SplitState;
use crate::catalog::split_state::{CutoverRequest, Phase};
use crate::guc;
use crate::server::txn::transaction;
use crate::server::wait::{self, WorkerStatus};
use crate::split::copy::outcome::StepOutcome;
use crate::split::copy::step;
use crate::split::injection_points::{self, reach};
use crate::split::record;
use crate::split::verify::repair;
use crate::split::verify::walk::{self, Ended};
use std::time::{Duration, Instant};

const WAITING: &str = "waiting for shard_split_cutover";

impl Worker {
    pub(super) fn copy(&mut self, state: &SplitState) -> Result<Duration> {
        let began = Instant::now();
        let outcome = step::run(self.attached(state)?)?;
        if outcome.progress.is_copied() {
            reach(injection_points::BACKFILL_DONE)?;
        }
        self.record(state, &outcome)?;
        if let Some(engine) = self.engine.as_mut() {
            self.readers.watch(&engine.tenure.plan, &mut engine.sessions)?;
        }
        match self.engine.as_mut().filter(|_| outcome.chunks == 0 && !outcome.progress.is_copied()) {
            Some(engine) => {
                // A step without rows renews nothing.
                renew_lease(&engine.tenure, &mut engine.sessions, &mut self.lease_renewed)?;
                if let Some(reason) = engine.pace.throttle.reason() {
                    wait::report(reason);
                }
                Ok(guc::tail_interval())
            }
            None => Ok(pause_of_copy(&outcome, began.elapsed())),
        }
    }

    pub(super) fn tail(&mut self, state: &SplitState) -> Result<Duration> {
        let began = Instant::now();
        let (mut failures, rests_until) = (self.compare_failures, self.compares_after);
        let engine = self.attached(state)?;
        if state.repairs {
            repair::run(&engine.tenure, &mut engine.sessions, &engine.tables)?;
        }
        match (state.verifies, began < rests_until) {
            (true, false) => walk::begin(engine)?,
            (true, true) => walk::rest(engine.verification.as_mut()),
            (false, _) => engine.verification = None,
        }
        let outcome = step::run(engine);
        let ended = outcome.as_ref().ok().map(|outcome| match outcome.restarted {
            None => Ended::Committed,
            Some(_) => Ended::CopyRestarted,
        });
        walk::record(engine.tenure.plan.id, engine.verification.as_mut(), ended, &mut failures);
        let compared = engine.verification.as_ref().map_or(0, |run| run.step_bytes);
        self.compare_failures = failures;
        if compared > 0 {
            self.compares_after = Instant::now() + rest_by_rate(compared, began.elapsed());
        }
        let outcome = outcome?;
        if outcome.lag < guc::max_lag() && outcome.progress.is_copied() {
            reach(injection_points::TAIL_CAUGHT_UP)?;
        }
        let is_caught_up = outcome.lag < guc::max_lag() && outcome.progress.is_copied();
        // The way to the cutover waits for it, changes do not.
        let is_analyzed = state.phase != Phase::Tailing || !is_caught_up || self.analyze_target(state)?;
        if is_analyzed {
            self.record(state, &outcome)?;
        }
        self.renew_own_lease(state)?;
        if !is_analyzed {
            return Ok(Duration::ZERO);
        }
        // A table that was truncated or rewritten is copied again, beginning here.
        if outcome.chunks > 0 {
            return Ok(pause_of_copy(&outcome, began.elapsed()));
        }
        // A window that took long has another one behind it.
        let behind = outcome.lag > guc::tail_interval();
        let (status, text) = self.what_tail_waits_for(state, &outcome, behind)?;
        wait::report_as(status, &text);
        let compares = state.verifies && self.compares_after <= Instant::now();
        let is_idle = is_caught_up && outcome.is_empty() && !behind && !state.verifies && !state.repairs;
        self.idle_since = self.idle_since.or(Some(Instant::now())).filter(|_| is_idle);
        Ok(if behind || compares || state.repairs { Duration::ZERO } else { guc::tail_interval() })
    }

    /// Returns what the worker does or waits for behind a step that follows changes.
    fn what_tail_waits_for(
        &mut self,
        state: &SplitState,
        outcome: &StepOutcome,
        is_behind: bool,
    ) -> Result<(WorkerStatus, String)> {
        if outcome.lag > guc::max_lag() {
            let text = format!(
                "the lag to fall: {} changes took {} ms, shardmaster.max_lag is {} ms",
                outcome.changes,
                outcome.lag.as_millis(),
                guc::max_lag().as_millis()
            );
            return Ok((WorkerStatus::Waiting, text));
        }
        if is_behind {
            return Ok((WorkerStatus::Following, APPLYING.to_owned()));
        }
        if state.request == CutoverRequest::Later {
            let text = transaction(|| cutover_request::waits_for(self.id)).unwrap_or_default();
            return Ok((WorkerStatus::Waiting, text));
        }
        let Some(engine) = self.engine.as_mut() else { return Ok((WorkerStatus::Idle, WAITING.to_owned())) };
        match self.readers.watch(&engine.tenure.plan, &mut engine.sessions)? {
            Some(reads) => Ok((WorkerStatus::Waiting, reads)),
            None => Ok((WorkerStatus::Idle, WAITING.to_owned())),
        }
    }

    /// Records the step on the master, at once if the phase changes, else once a second.
    fn record(&mut self, state: &SplitState, outcome: &StepOutcome) -> Result<()> {
        let Some(engine) = self.engine.as_mut() else { return Ok(()) };
        let changes_phase = record::next_phase(state.phase, outcome) != state.phase;
        let due = self.recorded.elapsed() > Duration::from_secs(1);
        if changes_phase || due || outcome.chunks > 0 || outcome.changes > 0 || outcome.restarted.is_some() {
            let queue_bytes = engine.sessions.queue_bytes(&engine.tables)?;
            if let Some(engine) = self.engine.as_ref() {
                self.retry_on_lock(|| {
                    record::step(self.id, engine.tenure.generation, &engine.tables, outcome, queue_bytes)
                })?;
            }
            self.recorded = Instant::now();
        }
        Ok(())
    }
}
