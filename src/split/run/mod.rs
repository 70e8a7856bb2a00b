//! The loop of a split's worker: read the plan, do what follows from it, record the outcome.

mod ends;
pub mod error_handling;
mod executions;
mod idle;
mod linger;
mod lock_holders;
pub mod master_writes;
mod pace;
pub mod schema_change;
mod steps;
pub mod take_over;
mod watched_readers;

use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{self, Activity};
use crate::catalog::{cutover_request, reverse_split, split};
use crate::guc;
use crate::remote::interest;
use crate::server::txn::{transaction, try_transaction};
use crate::server::wait::{self, WorkerStatus};
use crate::split::cutover;
use crate::split::cutover::complete_target;
use crate::split::cutover::recovery::{self, Reverted};
use crate::split::cutover::watch;
use crate::split::cutover::{Aim, Rehearsed};
use crate::split::end::{compared, ending, rollback, withdraw};
use crate::split::engine::Engine;
use crate::split::injection_points::{self, reach};
use crate::split::lifecycle::work::{self, Work};
use crate::split::plan::check;
use crate::split::{aborted, analyze, install, lifecycle, phases, record, reverse};
use pace::{is_lease_due, renew_lease, rest_by_rate};
use pgrx::pg_sys;
use std::time::{Duration, Instant};
use watched_readers::Readers;

/// A worker of one split.
struct Worker {
    id: i64,
    engine: Option<Engine>,
    /// When the finish was last found to be blocked by nothing but rows.
    ready: Option<Instant>,
    /// The change of its shards' endpoints that its sessions know.
    endpoints: String,
    attempts: u32,
    /// What its tables wait for, as recorded in the history.
    told_to_wait: Option<String>,
    /// Logical replication that was set up meanwhile.
    readers: Readers,
    /// An error that blocks clients and needs a repair is reported once, until a turn has succeeded.
    told_to_mend: bool,
    /// The number of consecutive steps in which tables could not be compared.
    compare_failures: u32,
    /// The time until which the rate limit pauses comparisons; changes are applied meanwhile.
    compares_after: Instant,
    /// `None` if this worker has not renewed the lease yet; when another worker did is unknown.
    lease_renewed: Option<Instant>,
    recorded: Instant,
    began: Instant,
    /// Since when no step has found anything to do. `None` if the last one has.
    idle_since: Option<Instant>,
    /// Since when it has nothing to do, with its sessions from the cutover.
    lingers_since: Option<Instant>,
}

/// Works until nothing is left to do, or until an operator is needed.
pub fn run(split_id: i64) {
    interest::wait_while(move |shard| !is_lost(split_id, shard));
    let now = Instant::now();
    let mut worker = Worker {
        id: split_id,
        engine: None,
        ready: None,
        endpoints: String::new(),
        attempts: transaction(|| split_state::work::attempts_before(split_id)),
        told_to_wait: None,
        readers: Readers::none(),
        told_to_mend: false,
        compare_failures: 0,
        compares_after: now,
        lease_renewed: None,
        recorded: now,
        began: now,
        idle_since: None,
        lingers_since: None,
    };
    loop {
        let Ok(state) = transaction(|| row::read(split_id)) else { return };
        let work = work::next(&state);
        if state.failed() || (work == Work::Nothing && !worker.lingers(&state)) {
            return;
        }
        if work == Work::Nothing {
            continue;
        }
        worker.go_on_with(work);
        if worker.endpoints != state.endpoints {
            worker.engine = None;
            worker.endpoints.clone_from(&state.endpoints);
        }
        match worker.turn(&state, work) {
            Ok(pause) => {
                worker.told_to_mend = false;
                if worker.attempts > 0 {
                    worker.attempts = 0;
                    worker.write(|| split_state::work::recovered(split_id));
                }
                // A wake-up of this worker while it waited for a shard was not noticed.
                if !asked_for_else(split_id, work) {
                    worker.pause(pause);
                }
            }
            Err(SplitError::Superseded) => return,
            Err(SplitError::Behind { shard, generation }) => {
                worker.engine = None;
                if !transaction(|| {
                    record::catch_up_generation(split_id, &shard, state.generation, generation)
                }) {
                    return;
                }
            }
            Err(error) => worker.after_error(error, &state, work),
        }
    }
}

/// Whether the operator has declared meanwhile that the shard will not return.
fn is_lost(split_id: i64, shard: &str) -> bool {
    // SAFETY: this reads the state of the transaction. None is open where a shard is waited for.
    let may_ask = unsafe { !pg_sys::IsTransactionState() };
    may_ask && transaction(|| split::lost_shards(split_id)).iter().any(|lost| lost == shard)
}

/// Whether other work is due by now. A request after this check sets the latch, and the following sleep ends at once.
fn asked_for_else(split_id: i64, work: Work) -> bool {
    let next = |state: SplitState| work::next(&state);
    match (work, transaction(|| row::read(split_id)).map(next)) {
        // That the copy starts again was not requested.
        (Work::Tail, Ok(Work::Copy)) => false,
        (_, now) => now.map_or(true, |now| now != work),
    }
}

impl Worker {
    /// Does one piece of work; returns how long to pause before the next.
    fn turn(&mut self, state: &SplitState, work: Work) -> Result<Duration> {
        if self.is_in_doubt(state) && self.revert(state)? == Reverted::Done {
            return Ok(Duration::ZERO);
        }
        // A running cutover is completed; after an undone one no other begins.
        let rests = matches!(
            work,
            Work::Hold
                | Work::Copy
                | Work::Tail
                | Work::BeginBackfill
                | Work::Install
                | Work::Cutover
                | Work::Rehearse
        );
        if state.paused && rests {
            return self.rest();
        }
        let waits_on =
            work == Work::Copy && self.engine.as_ref().is_some_and(|e| e.pace.throttle.reason().is_some());
        if work != Work::Tail {
            self.idle_since = None;
        }
        if let Some((status, text)) = doing(work).filter(|_| !waits_on) {
            wait::report_as(status, text);
        }
        if state.source_lost && phases::is_decided(state.phase) && !state.finished {
            return self.finish_without_source(state);
        }
        match work {
            Work::Nothing => Ok(Duration::ZERO),
            Work::Install => self.install(),
            Work::Hold => self.hold(),
            Work::BeginBackfill => self.begin_backfill(),
            Work::Copy => self.copy(state),
            Work::Tail => self.tail(state),
            Work::Cutover => self.cut_over(state),
            Work::Rehearse => self.rehearse(state),
            Work::CompleteCutover => self.complete_cutover(state),
            Work::Prove => self.prove(state),
            Work::Finish => self.finish(),
            Work::EndRedirect => self.end_redirect(),
            Work::Settle => self.retry_on_lock(|| Ok(lifecycle::settle(self.id)?)).map(|()| Duration::ZERO),
            Work::Watch => self.watch(state),
            Work::Verify => self.verify(state),
            Work::RollBack => self.roll_back(state),
        }
    }

    fn cut_over(&mut self, state: &SplitState) -> Result<Duration> {
        // What has been decided, or may have been, is handled by then.
        let is_heard_late = self.is_heard_late(state);
        self.attached(state)?;
        if state.cutover_left == Some(Duration::ZERO) {
            return Err(SplitError::Aborted(aborted::window_over()));
        }
        if is_heard_late {
            return Err(SplitError::Aborted(aborted::interrupted(transaction(|| {
                cutover_request::last_error(self.id)
            }))));
        }
        let id = self.id;
        let plan = &self.attached(state)?.tenure.plan;
        executions::require_none(&plan.source.shard_key, &plan.target.shard_key)?;
        if reverse::lacks_partitions(id, &self.attached(state)?.tables)? {
            reverse::capture_partitions(id, &self.read_plan()?.1)?;
        }
        self.cut_over_to(state, Aim::Decide)?;
        Ok(Duration::ZERO)
    }

    fn rehearse(&mut self, state: &SplitState) -> Result<Duration> {
        let Some(rehearsed) = self.cut_over_to(state, Aim::Rehearse)? else { return Ok(Duration::ZERO) };
        // Its sessions hold what a cutover holds.
        let Some(engine) = self.engine.take() else { return Ok(Duration::ZERO) };
        recovery::reopen_routes(&engine.tenure.plan)?;
        drop(engine);
        let fenced = rehearsed.began.elapsed();
        self.write(|| record::rehearsed(self.id, fenced, rehearsed.waited_for.as_deref()));
        Ok(Duration::ZERO)
    }

    fn cut_over_to(&mut self, state: &SplitState, aim: Aim) -> Result<Option<Rehearsed>> {
        let (id, work) = (self.id, work::next(state));
        transaction(|| lifecycle::require_alike(id)).map_err(SplitError::Aborted)?;
        let wished = transaction(|| cutover_request::max_fence(id));
        let limit = wished.map_or(guc::cutover_timeout(), |limit| limit.min(guc::cutover_timeout()));
        let engine = self.attached(state)?;
        engine.verification = None;
        // Rows have come since the tables were analyzed. What is not done within a turn delays nothing.
        engine.analyzed.clear();
        analyze::run(&engine.tenure.plan, &mut engine.sessions.target, &mut engine.analyzed);
        match cutover::be_ready(engine) {
            Err(SplitError::Failed(failure)) if !asked_for_else(id, work) => {
                self.stop_before_cutover(state.phase, &failure);
                return Ok(None);
            }
            Err(SplitError::Reshaped(why)) => return self.reshaped_before_cutover(state, why),
            ready => ready?,
        }
        let done = cutover::run(engine, aim, limit);
        engine.sessions.set_deadline(None);
        done
    }

    fn complete_cutover(&mut self, state: &SplitState) -> Result<Duration> {
        if try_transaction(|| reverse_split::of(self.id))?.is_some_and(|back| back.is_decided()) {
            return self.finish();
        }
        let version = state.version_cutover.unwrap_or_default();
        if self.engine.is_none() {
            let (plan, identity) = self.read_plan()?;
            if complete_target::complete(&plan, state.generation, &identity, version)? {
                return Ok(Duration::ZERO);
            }
        }
        recovery::complete(self.attached(state)?, version)?;
        Ok(Duration::ZERO)
    }

    fn verify(&mut self, state: &SplitState) -> Result<Duration> {
        let version = state.version_cutover.unwrap_or_default();
        let mut failures = self.compare_failures;
        let began = Instant::now();
        let engine = self.attached(state)?;
        let ended = compared::run(engine, version, &mut failures);
        let bytes = engine.verification.as_ref().map_or(0, |run| run.step_bytes);
        self.compare_failures = failures;
        ended.map(|()| rest_by_rate(bytes, began.elapsed()))
    }

    fn end_redirect(&mut self) -> Result<Duration> {
        self.engine = None;
        session::with_connect_timeout(transaction(|| split_state::work::attempts(self.id)), || {
            ending::run(self.id)
        })?;
        Ok(Duration::ZERO)
    }

    fn watch(&mut self, state: &SplitState) -> Result<Duration> {
        self.engine = None;
        let (plan, identity) = self.read_plan()?;
        let version = state.version_cutover.unwrap_or_default();
        let attempts = transaction(|| split_state::work::attempts(self.id));
        match session::with_connect_timeout(attempts, || reverse::look(self.id, &identity)) {
            Ok(true) => return Ok(Duration::ZERO),
            Ok(false) => {}
            // The check of both shards shows which of them does not answer.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        session::with_connect_timeout(attempts, || watch::run(&plan, version, &identity))?;
        session::with_connect_timeout(attempts, || reverse::measure(self.id, &identity))?;
        Ok(Duration::ZERO)
    }

    fn roll_back(&mut self, state: &SplitState) -> Result<Duration> {
        self.engine = None;
        if phases::is_decided(state.phase) {
            let version = state.version_cutover.unwrap_or_default();
            return withdraw::run(&self.take_plan()?, version).map(|()| Duration::ZERO);
        }
        rollback::run(&self.take_plan()?, reverse::remove)?;
        Ok(Duration::ZERO)
    }

    fn install(&mut self) -> Result<Duration> {
        self.engine = None;
        let tenure = self.take_plan()?;
        executions::require_none(&tenure.plan.source.shard_key, &tenure.plan.target.shard_key)?;
        self.write(|| split_state::work::does(self.id, Activity::Working, None));
        let sessions = match tenure.plan.reverse_of {
            Some(there) if !reverse::begin(&tenure, there)? => return Ok(Duration::ZERO),
            Some(_) => None,
            None => {
                check::require(&tenure.plan, &tenure.identity)?;
                Some(install::install(&tenure)?)
            }
        };
        reverse::install(&tenure, sessions)?;
        reach(injection_points::INSTALL_DONE)?;
        self.retry_on_lock(|| record::installed(self.id))?;
        Ok(Duration::ZERO)
    }

    /// Keeps a paused split: changes are queued, and only the lease is written.
    fn rest(&mut self) -> Result<Duration> {
        self.write(|| split_state::work::rests_paused(self.id));
        match self.engine.as_mut() {
            Some(engine) => {
                engine.sessions.streams.end();
                renew_lease(&engine.tenure, &mut engine.sessions, &mut self.lease_renewed)?;
            }
            // Only the source is needed for that, and no side is taken over.
            None if is_lease_due(self.lease_renewed) => {
                let plan = try_transaction(|| split::load(self.id))?;
                install::keep_lease(&plan)?;
                self.lease_renewed = Some(Instant::now());
            }
            None => {}
        }
        wait::report_as(WorkerStatus::Idle, "shard_split_resume: paused");
        Ok(Duration::from_secs(5))
    }

    /// Keeps a split whose capture is installed and whose copy was not requested yet.
    fn hold(&mut self) -> Result<Duration> {
        let state = transaction(|| row::read(self.id))?;
        let id = self.id;
        self.renew_own_lease(&state)?;
        self.write(|| split_state::work::does(id, Activity::Idle, None));
        wait::report_as(WorkerStatus::Idle, "waiting for shard_split_run_backfill");
        Ok(Duration::from_secs(5))
    }

    fn begin_backfill(&mut self) -> Result<Duration> {
        reach(injection_points::BACKFILL_BEGIN)?;
        self.retry_on_lock(|| record::backfill_begun(self.id))?;
        Ok(Duration::ZERO)
    }
}

const APPLYING: &str = "applying changes";

/// Returns the text for pg_stat_activity, or None if the earlier one still holds.
fn doing(work: Work) -> Option<(WorkerStatus, &'static str)> {
    let text = match work {
        Work::Nothing | Work::Hold | Work::BeginBackfill | Work::Settle => return None,
        Work::Tail => return Some((WorkerStatus::Following, APPLYING)),
        Work::Install => "installing",
        Work::Copy => "copying",
        Work::Cutover => "cutting over",
        Work::Rehearse => "rehearsing the cutover",
        Work::CompleteCutover => "completing the cutover",
        Work::Finish => "finishing",
        Work::Watch => "checking both shards",
        Work::Prove | Work::Verify => "comparing both sides",
        Work::RollBack => "rolling back",
        Work::EndRedirect => "ending the redirect",
    };
    Some((WorkerStatus::Working, text))
}
