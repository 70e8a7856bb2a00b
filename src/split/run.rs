//! The loop of a split's worker: look at the plan, do what follows from it, write
//! down what came of it.

use super::engine::Engine;
use super::error::{Result, SplitError};
use super::phase::{self, Phase, Work};
use super::points::{self, reach};
use super::{check, cutover, ending, finish, install, record, recovery, rollback, step, watch};
use crate::catalog::split::{self, Plan, State};
use crate::guc;
use crate::worker::txn::{transaction, try_transaction};
use crate::worker::wait;
use std::time::{Duration, Instant};

/// The longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// A worker of one split.
struct Worker {
    id: i64,
    engine: Option<Engine>,
    attempts: u32,
    lease_renewed: Instant,
    recorded: Instant,
}

/// Works until nothing is left to do, or until an operator is needed.
pub fn run(split_id: i64) {
    let now = Instant::now();
    let mut worker = Worker { id: split_id, engine: None, attempts: 0, lease_renewed: now, recorded: now };
    loop {
        let Ok(state) = transaction(|| split::state(split_id)) else { return };
        let work = phase::next_work(state.phase, state.goal, state.cutover_step, state.end);
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

/// Whether something else is to be done by now. What is asked for after this look
/// sets the latch, and the sleep that follows it ends at once.
fn asked_for_else(split_id: i64, work: Work) -> bool {
    transaction(|| split::state(split_id))
        .map_or(true, |s| phase::next_work(s.phase, s.goal, s.cutover_step, s.end) != work)
}

impl Worker {
    /// One piece of work; returns how long to pause before the next.
    fn turn(&mut self, state: &State, work: Work) -> Result<Duration> {
        let rests =
            matches!(work, Work::Hold | Work::Copy | Work::Tail | Work::BeginBackfill | Work::Install);
        if state.paused && rests {
            return self.rest();
        }
        match work {
            Work::Nothing => Ok(Duration::ZERO),
            Work::Install => self.install(),
            Work::Hold => self.hold(),
            Work::BeginBackfill => self.begin_backfill(),
            Work::Copy => self.copy(state),
            Work::Tail => self.tail(state),
            Work::Cutover => {
                cutover::run(self.attached(state)?)?;
                Ok(Duration::ZERO)
            }
            Work::CompleteCutover => {
                let version = state.version_cutover.unwrap_or_default();
                recovery::complete(self.attached(state)?, version)?;
                Ok(Duration::ZERO)
            }
            Work::Finish => {
                self.engine = None;
                let (plan, generation, identity) = take_plan(self.id)?;
                let request = transaction(|| record::finish_request(self.id));
                finish::run(&plan, generation, &identity, &request)?;
                Ok(Duration::ZERO)
            }
            Work::EndRedirect => {
                self.engine = None;
                ending::run(self.id)?;
                Ok(Duration::ZERO)
            }
            Work::Watch => {
                self.engine = None;
                let (plan, identity) =
                    try_transaction(|| Ok::<_, SplitError>((split::load(self.id)?, split::identity())))?;
                watch::run(&plan, state.version_cutover.unwrap_or_default(), &identity)?;
                Ok(Duration::ZERO)
            }
            Work::RollBack => {
                self.engine = None;
                let (plan, generation, identity) = take_plan(self.id)?;
                rollback::run(&plan, generation, &identity)?;
                Ok(Duration::ZERO)
            }
        }
    }

    /// The engine, attached to both sides if it is not: generation first, then
    /// whatever an earlier worker left in the middle of a cutover.
    fn attached(&mut self, state: &State) -> Result<&mut Engine> {
        if self.engine.is_none() {
            let (plan, generation, identity) = take_plan(self.id)?;
            wait::report("connecting to the shards");
            let mut engine = match Engine::attach(plan.clone(), generation, &identity) {
                Err(SplitError::NotInstalled(_))
                    if state.phase != Phase::Completed
                        && recovery::adopt_finished(&plan, generation, &identity)? =>
                {
                    return Err(SplitError::Retry("the plan to be read again".into()));
                }
                attached => attached?,
            };
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
        let (plan, generation, identity) = take_plan(self.id)?;
        transaction(|| record::activity(self.id, "working", None));
        check::require(&plan, &identity)?;
        install::install(&plan, generation, &identity)?;
        try_transaction(|| record::installed(self.id))?;
        Ok(Duration::ZERO)
    }

    /// Paused: changes are queued, nothing is read or written but the lease.
    fn rest(&mut self) -> Result<Duration> {
        transaction(|| record::activity(self.id, "paused", Some("shard_split_resume")));
        if let Some(engine) = self.engine.as_mut() {
            renew_lease(engine, &mut self.lease_renewed)?;
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
        reach(points::BACKFILL_BEGIN)?;
        try_transaction(|| record::backfill_begun(self.id))?;
        Ok(Duration::ZERO)
    }

    fn copy(&mut self, state: &State) -> Result<Duration> {
        let began = Instant::now();
        wait::report("copying");
        let outcome = step::run(self.attached(state)?)?;
        if outcome.progress.is_copied() {
            reach(points::BACKFILL_DONE)?;
        }
        let bytes = outcome.bytes;
        self.record(state, &outcome)?;
        let worked = began.elapsed();
        // Where nobody writes, nobody is disturbed.
        let share = if outcome.changes > 0 { guc::copy_share() } else { 1.0 };
        let by_rate = guc::max_copy_rate().map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(bytes as f64 / rate as f64).saturating_sub(worked)
        });
        if by_rate > Duration::ZERO {
            wait::report("the rate limit shardmaster.max_copy_rate");
        }
        Ok(by_rate.max(worked.mul_f64((1.0 - share) / share)))
    }

    fn tail(&mut self, state: &State) -> Result<Duration> {
        wait::report("applying changes");
        let outcome = step::run(self.attached(state)?)?;
        if outcome.lag < guc::max_lag() && outcome.progress.is_copied() {
            reach(points::TAIL_CAUGHT_UP)?;
        }
        self.record(state, &outcome)?;
        let mut renewed = self.lease_renewed;
        renew_lease(self.attached(state)?, &mut renewed)?;
        self.lease_renewed = renewed;
        // A window that took long has another behind it.
        let behind = outcome.lag > guc::tail_interval() || !outcome.progress.is_copied();
        if !behind {
            wait::report("waiting for shard_split_cutover");
        }
        Ok(if behind { Duration::ZERO } else { guc::tail_interval() })
    }

    /// The master is told, at once if the phase changes, else once a second.
    fn record(&mut self, state: &State, outcome: &step::Outcome) -> Result<()> {
        let Some(engine) = self.engine.as_mut() else { return Ok(()) };
        let changes_phase = record::next_phase(state.phase, outcome) != state.phase;
        let due = self.recorded.elapsed() > Duration::from_secs(1);
        if changes_phase || due || outcome.chunks > 0 || outcome.changes > 0 || outcome.restarted.is_some() {
            let queue_bytes = record::queue_bytes(engine)?;
            try_transaction(|| record::step(engine, outcome, queue_bytes))?;
            self.recorded = Instant::now();
        }
        Ok(())
    }

    /// Sessions may be in the middle of something: the next turn opens new ones.
    fn after_error(&mut self, error: SplitError, state: &State, work: Work) {
        self.engine = None;
        // What a shard refuses may be mended meanwhile; what is found to be wrong will not pass.
        let is_verdict = matches!(error, SplitError::Failed(_) | SplitError::NotInstalled(_));
        let for_ever = work == Work::CompleteCutover && !is_verdict;
        if let SplitError::GaveUp(failure) = error {
            transaction(|| record::gave_up(self.id, &failure));
            return;
        }
        // What failed is not what the operator wants by now.
        if !error.may_pass() && !for_ever && !asked_for_else(self.id, work) {
            let in_cutover = work == Work::Cutover;
            let failure = error.into_failure();
            if in_cutover {
                // The next turn sets the cutover back before it does anything else.
                transaction(|| record::gave_up(self.id, &failure));
            } else {
                transaction(|| record::failed(self.id, state.phase, &failure));
            }
            return;
        }
        self.attempts += 1;
        let failure = error.into_failure();
        transaction(|| record::retrying(self.id, self.attempts, &failure));
        let pause = Duration::from_millis(50 << self.attempts.min(10)).min(MAX_BACKOFF);
        wait::report(&format!("retrying after: {}", failure.message));
        wait::sleep(pause);
    }
}

/// Takes the plan for this worker: generation + 1 on the master, before anything on
/// a shard is read.
fn take_plan(id: i64) -> Result<(Plan, i64, String)> {
    try_transaction(|| {
        let generation = record::take(id)?;
        Ok((split::load(id)?, generation, split::identity()))
    })
}

/// Well before it ends, so that a slow step does not let it run out.
fn renew_lease(engine: &mut Engine, renewed: &mut Instant) -> Result<()> {
    let lease = Duration::from_secs(u64::try_from(guc::capture_lease_seconds()).unwrap_or(1));
    if renewed.elapsed() > lease / 8 {
        engine.control_transaction(&install::renew_lease(engine.plan.id))?;
        *renewed = Instant::now();
    }
    Ok(())
}
