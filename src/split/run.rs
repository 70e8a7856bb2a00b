//! The loop of a split's worker: look at the plan, do what follows from it, write
//! down what came of it.

use super::copy::{outcome, step};
use super::cutover::recovery::{self, Reverted};
use super::cutover::{self, on_master, settled, watch};
use super::end::{ending, finish, lost, rollback};
use super::engine::Engine;
use super::injection_points::{self, reach};
use super::lifecycle::work::{self, Work};
use super::plan::check;
use super::{install, record};
use crate::agent::error::{Result, SplitError};
use crate::agent::state::lease;
use crate::agent::state::tenure::Tenure;
use crate::catalog::split::{self, Plan, State};
use crate::catalog::split_state::{CutoverStep, Phase};
use crate::error::Failure;
use crate::guc;
use crate::remote::wanted;
use crate::server::txn::{soon, transaction, try_transaction};
use crate::server::wait;
use crate::split::cutover::aborted;
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// The longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// A worker of one split.
struct Worker {
    id: i64,
    engine: Option<Engine>,
    attempts: u32,
    /// None: not yet by this worker, and how long ago by another nobody knows.
    lease_renewed: Option<Instant>,
    recorded: Instant,
    began: Instant,
}

/// Works until nothing is left to do, or until an operator is needed.
pub fn run(split_id: i64) {
    wanted::wait_while(move |shard| !is_lost(split_id, shard));
    let now = Instant::now();
    let mut worker =
        Worker { id: split_id, engine: None, attempts: 0, lease_renewed: None, recorded: now, began: now };
    loop {
        let Ok(state) = transaction(|| split::state(split_id)) else { return };
        let work = work::next(&state);
        if state.failed || work == Work::Nothing {
            return;
        }
        match worker.turn(&state, work) {
            Ok(pause) => {
                if worker.attempts > 0 {
                    worker.attempts = 0;
                    transaction(|| record::recovered(split_id));
                }
                // Whoever woke this worker while it waited for a shard was not heard.
                if !asked_for_else(split_id, work) {
                    wait::sleep(pause);
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

/// The operator has said meanwhile that the shard will not come back.
fn is_lost(split_id: i64, shard: &str) -> bool {
    // SAFETY: a look at the state of the transaction. None is open where a shard is waited for.
    let may_ask = unsafe { !pg_sys::IsTransactionState() };
    may_ask && transaction(|| split::lost_shards(split_id)).iter().any(|lost| lost == shard)
}

/// Whether something else is to be done by now. What is asked for after this look
/// sets the latch, and the sleep that follows it ends at once.
fn asked_for_else(split_id: i64, work: Work) -> bool {
    let next = |state: State| work::next(&state);
    match (work, transaction(|| split::state(split_id)).map(next)) {
        // That the copy starts again nobody has asked for.
        (Work::Tail, Ok(Work::Copy)) => false,
        (_, now) => now.map_or(true, |now| now != work),
    }
}

impl Worker {
    /// One piece of work; returns how long to pause before the next.
    fn turn(&mut self, state: &State, work: Work) -> Result<Duration> {
        if self.is_in_doubt(state) && self.revert(state)? == Reverted::Done {
            return Ok(Duration::ZERO);
        }
        // A cutover that is under way goes to its end; what was set back begins no other one.
        let rests = matches!(
            work,
            Work::Hold | Work::Copy | Work::Tail | Work::BeginBackfill | Work::Install | Work::Cutover
        );
        if state.paused && rests {
            return self.rest();
        }
        if let Some(text) = doing(work) {
            wait::report(text);
        }
        if state.source_lost && state.phase == Phase::Completed && !state.finished {
            return self.finish_without_source(state);
        }
        match work {
            Work::Nothing => Ok(Duration::ZERO),
            Work::Install => self.install(),
            Work::Hold => self.hold(),
            Work::BeginBackfill => self.begin_backfill(),
            Work::Copy => self.copy(state),
            Work::Tail => self.tail(state),
            Work::Cutover => {
                // What has been decided, or may have been, is settled by then.
                let is_heard_late = self.is_heard_late(state);
                let engine = self.attached(state)?;
                if is_heard_late {
                    return Err(SplitError::Aborted(aborted::interrupted()));
                }
                cutover::run(engine)?;
                Ok(Duration::ZERO)
            }
            Work::CompleteCutover => {
                let version = state.version_cutover.unwrap_or_default();
                if self.engine.is_none() {
                    let (plan, identity) = self.read_plan()?;
                    if settled::complete(&plan, state.generation, &identity, version)? {
                        return Ok(Duration::ZERO);
                    }
                }
                recovery::complete(self.attached(state)?, version)?;
                Ok(Duration::ZERO)
            }
            Work::Finish => {
                self.engine = None;
                let tenure = self.taken()?;
                let request = transaction(|| record::finish_request(self.id));
                finish::run(&tenure, &request)?;
                Ok(Duration::ZERO)
            }
            Work::EndRedirect => {
                self.engine = None;
                ending::run(self.id)?;
                Ok(Duration::ZERO)
            }
            Work::Watch => {
                self.engine = None;
                let (plan, identity) = self.read_plan()?;
                watch::run(&plan, state.version_cutover.unwrap_or_default(), &identity)?;
                Ok(Duration::ZERO)
            }
            Work::RollBack => {
                self.engine = None;
                rollback::run(&self.taken()?)?;
                Ok(Duration::ZERO)
            }
        }
    }

    /// As it is, without taking it.
    fn read_plan(&self) -> Result<(Plan, String)> {
        try_transaction(|| Ok((split::load(self.id)?, split::identity())))
    }

    fn finish_without_source(&mut self, state: &State) -> Result<Duration> {
        self.engine = None;
        let tenure = self.taken()?;
        lost::finish_without_source(&tenure, state.version_cutover.unwrap_or_default())?;
        Ok(Duration::ZERO)
    }

    /// An earlier worker, or this one with sessions that it has lost, was within a cutover.
    fn is_in_doubt(&self, state: &State) -> bool {
        self.engine.is_none()
            && state.phase == Phase::CutoverPending
            && state.cutover_step != CutoverStep::None
    }

    /// Takes the plan for this worker: generation + 1 on the master, before anything on a shard
    /// is read.
    fn taken(&self) -> Result<Tenure> {
        self.patiently(|| take(self.id))
    }

    /// Before anything else, and without a target that may be away: writers of the source
    /// wait for it. Where only the target knows, it is asked.
    fn revert(&mut self, state: &State) -> Result<Reverted> {
        let id = self.id;
        let tenure = self.taken()?;
        wait::report("the cutover to be reverted on the source");
        let outcome = recovery::revert(&tenure, state.target_lost)?;
        if outcome == Reverted::AskTarget {
            let now = transaction(|| split::state(self.id))?;
            self.attached(&now).map_err(|error| ask_target(error, id))?;
        }
        Ok(outcome)
    }

    /// The engine, attached to both sides if it is not: generation first, then
    /// whatever an earlier worker left in the middle of a cutover.
    fn attached(&mut self, state: &State) -> Result<&mut Engine> {
        if self.engine.is_none() {
            let tenure = self.taken()?;
            let mut engine = match Engine::attach(&tenure) {
                Err(SplitError::NotInstalled(_))
                    if state.phase != Phase::Completed && recovery::adopt_finished(&tenure)? =>
                {
                    return Err(SplitError::Retry("the plan to be read again".into()));
                }
                Err(SplitError::NotInstalled(_))
                    if state.phase == Phase::Completed
                        && recovery::adopt_finish(
                            &tenure.plan,
                            state.version_cutover.unwrap_or_default(),
                            &tenure.identity,
                        )? =>
                {
                    return Err(SplitError::Retry("the plan to be read again".into()));
                }
                // A shard that failed over to a time before the installation: nothing is copied yet.
                Err(SplitError::NotInstalled(failure)) if state.phase == Phase::DualWrite => {
                    check::require(&tenure.plan, &tenure.identity)?;
                    install::install(&tenure)?;
                    transaction(|| {
                        split::event(self.id, None, None, &format!("installed again: {}", failure.message))
                    });
                    return Err(SplitError::Retry("the plan to be read again".into()));
                }
                attached => attached?,
            };
            if self.attempts > 0 {
                transaction(|| record::under_way(self.id));
            }
            recovery::settle(&mut engine, state)?;
            self.engine = Some(engine);
            // What was settled may have changed the plan: look again.
            let now = transaction(|| split::state(self.id))?;
            if now.phase != state.phase {
                return Err(SplitError::Retry("the plan to be read again".into()));
            }
        }
        self.engine.as_mut().ok_or(SplitError::Superseded)
    }

    fn install(&mut self) -> Result<Duration> {
        self.engine = None;
        let tenure = self.taken()?;
        transaction(|| record::activity(self.id, "working", None));
        check::require(&tenure.plan, &tenure.identity)?;
        install::install(&tenure)?;
        try_transaction(|| record::installed(self.id))?;
        Ok(Duration::ZERO)
    }

    /// Paused: changes are queued, nothing is read or written but the lease.
    fn rest(&mut self) -> Result<Duration> {
        transaction(|| record::activity(self.id, "paused", Some("shard_split_resume")));
        match self.engine.as_mut() {
            Some(engine) => renew_lease(engine, &mut self.lease_renewed)?,
            // Nothing but the source is needed for that, and no side is taken over.
            None if is_lease_due(self.lease_renewed) => {
                let plan = try_transaction(|| split::load(self.id))?;
                install::keep_lease(&plan)?;
                self.lease_renewed = Some(Instant::now());
            }
            None => {}
        }
        wait::report("shard_split_resume: paused");
        Ok(Duration::from_secs(5))
    }

    /// Capture is installed, the copy was not asked for yet.
    fn hold(&mut self) -> Result<Duration> {
        let state = transaction(|| split::state(self.id))?;
        let id = self.id;
        let mut renewed = self.lease_renewed;
        renew_lease(self.attached(&state)?, &mut renewed)?;
        self.lease_renewed = renewed;
        transaction(|| record::activity(id, "idle", None));
        wait::report("waiting for shard_split_run_backfill");
        Ok(Duration::from_secs(5))
    }

    fn begin_backfill(&mut self) -> Result<Duration> {
        reach(injection_points::BACKFILL_BEGIN)?;
        try_transaction(|| record::backfill_begun(self.id))?;
        Ok(Duration::ZERO)
    }

    fn copy(&mut self, state: &State) -> Result<Duration> {
        let began = Instant::now();
        let outcome = step::run(self.attached(state)?)?;
        if outcome.progress.is_copied() {
            reach(injection_points::BACKFILL_DONE)?;
        }
        self.record(state, &outcome)?;
        Ok(pause_of_copy(&outcome, began.elapsed()))
    }

    fn tail(&mut self, state: &State) -> Result<Duration> {
        let began = Instant::now();
        let outcome = step::run(self.attached(state)?)?;
        if outcome.lag < guc::max_lag() && outcome.progress.is_copied() {
            reach(injection_points::TAIL_CAUGHT_UP)?;
        }
        self.record(state, &outcome)?;
        let mut renewed = self.lease_renewed;
        renew_lease(self.attached(state)?, &mut renewed)?;
        self.lease_renewed = renewed;
        // A table that was truncated or rewritten is copied again, at first here.
        if outcome.chunks > 0 {
            return Ok(pause_of_copy(&outcome, began.elapsed()));
        }
        // A window that took long has another behind it.
        let behind = outcome.lag > guc::tail_interval();
        let text = match outcome.lag > guc::max_lag() {
            true => format!(
                "the lag to fall: {} changes took {} ms, shardmaster.max_lag is {} ms",
                outcome.changes,
                outcome.lag.as_millis(),
                guc::max_lag().as_millis()
            ),
            false if behind => "applying changes".to_owned(),
            false => "waiting for shard_split_cutover".to_owned(),
        };
        wait::report(&text);
        Ok(if behind { Duration::ZERO } else { guc::tail_interval() })
    }

    /// The master is told, at once if the phase changes, else once a second.
    fn record(&mut self, state: &State, outcome: &outcome::Outcome) -> Result<()> {
        let Some(engine) = self.engine.as_mut() else { return Ok(()) };
        let changes_phase = record::next_phase(state.phase, outcome) != state.phase;
        let due = self.recorded.elapsed() > Duration::from_secs(1);
        if changes_phase || due || outcome.chunks > 0 || outcome.changes > 0 || outcome.restarted.is_some() {
            let queue_bytes = engine.queue_bytes()?;
            try_transaction(|| {
                record::step((engine.plan.id, engine.generation), &engine.tables, outcome, queue_bytes)
            })?;
            self.recorded = Instant::now();
        }
        Ok(())
    }

    /// Sessions may be in the middle of something: the next turn opens new ones.
    fn after_error(&mut self, error: SplitError, state: &State, work: Work) {
        self.engine = None;
        // Its operator waits for one of the shards no longer.
        let is_given_up =
            |now: State| !state.target_lost && now.target_lost || !state.source_lost && now.source_lost;
        if transaction(|| split::state(self.id)).is_ok_and(is_given_up) {
            return;
        }
        if work == Work::Cutover {
            let Ok(now) = transaction(|| split::state(self.id)) else { return };
            // Behind the decision nothing is given up: the next turn completes it.
            if now.phase == Phase::Completed {
                self.retry(&error.into_failure());
                return;
            }
            if let Some(failure) = aborted::abandoned(&error, is_overdue(&now)) {
                self.abandon(&failure);
                return;
            }
        }
        // What failed is not what the operator wants by now.
        let ends = !error.is_transient() && !asked_for_else(self.id, work);
        let failure = error.into_failure();
        if ends && !self.keeps_clients_out() {
            transaction(|| record::failed(self.id, state.phase, &failure));
            return;
        }
        if ends && self.attempts == 0 {
            let text =
                format!("clients of its keys are refused until this is mended: {}", record::reason(&failure));
            transaction(|| split::event(self.id, None, None, &text));
        }
        self.retry(&failure);
    }

    /// Within a cutover, decided or not, its keys are refused until a worker has brought it to an
    /// end. Nothing ends that worker for good: what is wrong may be mended, and nobody else would
    /// let clients in then.
    fn keeps_clients_out(&self) -> bool {
        transaction(|| split::state(self.id)).is_ok_and(|state| {
            matches!(state.cutover_step, CutoverStep::Disabled | CutoverStep::Decided | CutoverStep::Opened)
        })
    }

    /// A cutover was asked for before this worker began, and longer ago than one may take: its
    /// worker or the master has ended meanwhile. Whoever asked does not expect it any more.
    fn is_heard_late(&self, state: &State) -> bool {
        is_overdue(state) && state.cutover_age.is_some_and(|age| age > self.began.elapsed())
    }

    /// A cutover that is given up: it is not asked for any more, and set back at once. What
    /// cannot be set back now is the first that the next turn does.
    fn abandon(&mut self, failure: &Failure) {
        let id = self.id;
        let said = self.patiently(|| {
            record::cutover_aborted(id, failure);
            Ok(())
        });
        let now = said.and_then(|()| Ok(transaction(|| split::state(id))?));
        let back =
            now.and_then(
                |state| {
                    if self.is_in_doubt(&state) { self.revert(&state).map(|_| ()) } else { Ok(()) }
                },
            );
        if let Err(error) = back {
            self.engine = None;
            self.retry(&error.into_failure());
        }
    }

    /// Writes to the plan's row, which somebody's transaction may hold for as long as it is open.
    /// Where a cutover was interrupted, writers of the source do not wait for it.
    fn patiently<R>(&self, mut body: impl FnMut() -> Result<R>) -> Result<R> {
        let mut is_open = false;
        loop {
            if let Some(done) = soon(&mut body) {
                return done;
            }
            let _said = wait::said();
            wait::report(&format!("a lock on the master: {}", transaction(on_master::holders)));
            if is_open {
                return try_transaction(body);
            }
            // If it does not succeed, the next round does it.
            is_open = self.let_writers_in().is_ok();
        }
    }

    fn let_writers_in(&self) -> Result<()> {
        let (state, plan, identity) = try_transaction(|| {
            Ok::<_, SplitError>((split::state(self.id)?, split::load(self.id)?, split::identity()))
        })?;
        if !self.is_in_doubt(&state) {
            return Ok(());
        }
        recovery::let_writers_in(&plan, state.generation, &identity, state.target_lost)
    }

    fn retry(&mut self, failure: &Failure) {
        self.attempts += 1;
        let (id, attempts) = (self.id, self.attempts);
        let _ = self.patiently(|| {
            record::retrying(id, attempts, failure);
            Ok(())
        });
        let pause = Duration::from_millis(50 << self.attempts.min(10)).min(MAX_BACKOFF);
        let _said = wait::said();
        wait::report(&format!("retrying after: {}", record::reason(failure)));
        wait::sleep(pause);
    }
}

/// The cutover was asked for longer ago than it may take.
fn is_overdue(state: &State) -> bool {
    state.cutover_age.is_some_and(|age| age > guc::cutover_timeout())
}

/// How long a copy rests after a step, whatever phase it is done in.
fn pause_of_copy(outcome: &outcome::Outcome, worked: Duration) -> Duration {
    // Where nobody writes, nobody is disturbed.
    let share = if outcome.changes > 0 { guc::copy_share() } else { 1.0 };
    let by_rate = guc::max_copy_rate().map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(outcome.bytes as f64 / rate as f64).saturating_sub(worked)
    });
    if by_rate > Duration::ZERO {
        wait::report("the rate limit shardmaster.max_copy_rate");
    }
    by_rate.max(worked.mul_f64((1.0 - share) / share))
}

/// For pg_stat_activity. shardmaster.split_waits_for knows these texts from those that say
/// what is waited for. None: what was said before still holds.
fn doing(work: Work) -> Option<&'static str> {
    match work {
        Work::Nothing | Work::Hold | Work::BeginBackfill => None,
        Work::Install => Some("installing"),
        Work::Copy => Some("copying"),
        Work::Tail => Some("applying changes"),
        Work::Cutover => Some("cutting over"),
        Work::CompleteCutover => Some("completing the cutover"),
        Work::Finish => Some("finishing"),
        Work::Watch => Some("looking at both shards"),
        Work::RollBack => Some("rolling back"),
        Work::EndRedirect => Some("ending the redirect"),
    }
}

/// Within a transaction.
fn take(id: i64) -> Result<Tenure> {
    let generation = record::take(id)?;
    Ok(Tenure { plan: split::load(id)?, generation, identity: split::identity() })
}

/// Where a decision may be forgotten, the operator is told what waiting is for.
fn ask_target(error: SplitError, id: i64) -> SplitError {
    match error {
        SplitError::Remote(mut error) if error.is_transient() => {
            error.message = format!(
                "{}; the master was restarted in a cutover, and only the target knows whether it had decided",
                error.message
            );
            error.hint = Some(format!(
                "Writers are refused until it is back. If it is gone for good: SELECT shard_split_rollback({id}, target_lost => true)."
            ));
            SplitError::Remote(error)
        }
        other => other,
    }
}

/// Well before it ends, so that a slow step does not let it run out.
fn is_lease_due(renewed: Option<Instant>) -> bool {
    let lease = Duration::from_secs(u64::try_from(guc::capture_lease_seconds()).unwrap_or(1));
    renewed.is_none_or(|renewed| renewed.elapsed() > lease / 8)
}

fn renew_lease(engine: &mut Engine, renewed: &mut Option<Instant>) -> Result<()> {
    if is_lease_due(*renewed) {
        engine.control_transaction(&lease::renew(engine.plan.id))?;
        *renewed = Some(Instant::now());
    }
    Ok(())
}
