//! What a worker does after an error.

use crate::agent::error::{Result, SplitError};
use crate::catalog::split;
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverStep, Phase};
use crate::error::Failure;
use crate::guc;
use crate::server::retry::Backoff;
use crate::server::txn::transaction;
use crate::server::wait::{self, WorkerStatus};
use crate::split::lifecycle::work::Work;
use crate::split::run::schema_change::{self, Adopted};
use crate::split::run::{Worker, asked_for_else, lock_holders};
use crate::split::{aborted, phases, record};
use std::time::Duration;

/// The first and the longest pause between two attempts.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(15);
/// The longest pause while clients are refused, so that a shard that has failed over is noticed at once.
const MAX_BACKOFF_FENCED: Duration = Duration::from_secs(1);

impl Worker {
    /// Handles an error. Sessions may be in the middle of something: the next turn opens new ones.
    pub(super) fn after_error(&mut self, error: SplitError, state: &SplitState, work: Work) {
        self.engine = None;
        // The operator no longer waits for one of the shards.
        let is_given_up =
            |now: SplitState| !state.target_lost && now.target_lost || !state.source_lost && now.source_lost;
        if transaction(|| row::read(self.id)).is_ok_and(is_given_up) {
            return;
        }
        if matches!(work, Work::Cutover | Work::Rehearse) {
            let Ok(now) = transaction(|| row::read(self.id)) else { return };
            // After the decision nothing is aborted: the next turn completes it.
            if phases::is_decided(now.phase) {
                self.retry(&error.into_failure());
                return;
            }
            if let Some(failure) = aborted::abandoned(&error, is_overdue(&now)) {
                self.abandon(work, &failure);
                return;
            }
        }
        let error = match error {
            SplitError::Reshaped(why) if matches!(work, Work::Copy | Work::Tail) => match self.adopt(why) {
                // If another worker has taken over, the next turn finds out.
                Ok(_) | Err(SplitError::Superseded | SplitError::Behind { .. }) => return,
                Err(other) => other,
            },
            other => other,
        };
        // An error of work that is no longer wanted by now does not count.
        let error = self.with_holders(error);
        let ends = !error.is_transient() && !asked_for_else(self.id, work);
        let failure = error.into_failure();
        if ends && !self.keeps_clients_out() {
            self.write(|| {
                // The error is not recorded if something else was requested since that check.
                if row::lock(self.id).is_ok_and(|now| now.goal == state.goal) {
                    record::failed(self.id, state.phase, &failure);
                }
            });
            return;
        }
        if ends && !self.told_to_mend {
            let text =
                format!("clients of its keys are refused until this is fixed: {}", record::reason(&failure));
            transaction(|| split::event(self.id, None, None, &text));
            self.told_to_mend = true;
        }
        self.retry(&failure);
    }

    /// Adopts changed tables once both sides are alike. What the split waits for until then is reported once.
    fn adopt(&mut self, why: Failure) -> Result<Adopted> {
        // The check of both sides may take long.
        let _status = wait::status_scope();
        wait::report(&format!("both sides to be alike: {}", why.message));
        let adopted = self.take_plan().and_then(|tenure| schema_change::adopt(&tenure, why));
        if let Err(SplitError::Reshaped(failure)) = &adopted {
            let text = record::reason(failure);
            if self.told_to_wait.as_ref() != Some(&text) {
                transaction(|| split::event(self.id, None, None, &text));
                self.told_to_wait = Some(text);
            }
        } else if adopted.is_ok() {
            self.told_to_wait = None;
        }
        adopted
    }

    /// Whether the keys are refused: within a cutover, decided or not, they are until a worker has completed it. No
    /// error ends that worker for good: the cause may be repaired, and nothing else would admit clients then.
    fn keeps_clients_out(&self) -> bool {
        transaction(|| row::read(self.id)).is_ok_and(|state| {
            matches!(state.cutover_step, CutoverStep::Disabled | CutoverStep::Decided | CutoverStep::Opened)
        })
    }

    /// Whether a cutover was requested before this worker began, and longer ago than one may take: its worker or the
    /// master has ended meanwhile. Its operator does not expect it any more.
    pub(super) fn is_heard_late(&self, state: &SplitState) -> bool {
        is_overdue(state) && state.cutover_age.is_some_and(|age| age > self.began.elapsed())
    }

    /// Aborts a cutover: the request ends, and the cutover is undone at once. If that fails now, the next turn does it
    /// first.
    fn abandon(&mut self, work: Work, failure: &Failure) {
        let id = self.id;
        let said = self.retry_on_lock(|| match work {
            Work::Rehearse => {
                record::rehearsal_given_up(id, failure);
                Ok(())
            }
            _ => record::cutover_given_up(id, failure),
        });
        let now = said.and_then(|()| Ok(transaction(|| row::read(id))?));
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

    /// Stops the split for an error of the step before a cutover, like an ordinary step. If only the cutover was
    /// aborted, an operator who requests it again at once would never get the error.
    pub(super) fn stop_before_cutover(&mut self, phase: Phase, failure: &Failure) {
        self.engine = None;
        let id = self.id;
        self.write(|| {
            record::cutover_aborted(id, failure);
            record::failed(id, phase, failure);
        });
    }

    /// Handles changed tables before a cutover: the cutover is aborted while they are copied again, or while one side
    /// waits for the other. If they continue as they are, so does the cutover.
    pub(super) fn reshaped_before_cutover<R>(
        &mut self,
        state: &SplitState,
        why: Failure,
    ) -> Result<Option<R>> {
        self.engine = None;
        match self.adopt(why) {
            Ok(Adopted::GoesOn) => Err(SplitError::Retry("the tables, which have changed".into())),
            Ok(Adopted::CopiesAgain) => Err(SplitError::Aborted(aborted::because(aborted::COPIES_AGAIN))),
            Err(SplitError::Failed(failure)) => {
                self.stop_before_cutover(state.phase, &failure);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Adds the lock that was waited for without success, and its holders. This is skipped while clients wait for the
    /// next attempt.
    fn with_holders(&self, error: SplitError) -> SplitError {
        match error {
            SplitError::Remote(error) if error.is("55P03") && !self.keeps_clients_out() => {
                match self.read_plan() {
                    Ok((plan, _)) => lock_holders::named(&plan, error),
                    Err(_) => error.into(),
                }
            }
            other => other,
        }
    }

    fn retry(&mut self, failure: &Failure) {
        self.attempts += 1;
        let (id, attempts) = (self.id, self.attempts);
        self.write(|| record::retrying(id, attempts, failure));
        let longest = if self.keeps_clients_out() { MAX_BACKOFF_FENCED } else { MAX_BACKOFF };
        let pause = Backoff::new(FIRST_BACKOFF, longest).after(self.attempts).pause();
        let _status = wait::status_scope();
        // What it waits for is recorded, and a reader may not see that yet: a worker that works waits for nothing.
        wait::report_as(WorkerStatus::Working, &format!("retrying after: {}", record::reason(failure)));
        wait::sleep(pause);
    }
}

/// Whether the cutover was requested longer ago than it may take, or its window is over.
fn is_overdue(state: &SplitState) -> bool {
    match state.cutover_left {
        Some(left) => left.is_zero(),
        None => state.cutover_age.is_some_and(|age| age > guc::cutover_timeout()),
    }
}
