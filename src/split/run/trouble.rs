//! What a worker does when its work did not end well.

use super::{Worker, asked_for_else, lock_holders};
use crate::agent::error::{Result, SplitError};
use crate::catalog::split;
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverStep, Phase};
use crate::error::Failure;
use crate::guc;
use crate::server::retry::Backoff;
use crate::server::txn::transaction;
use crate::server::wait;
use crate::split::aborted;
use crate::split::lifecycle::work::Work;
use crate::split::phases;
use crate::split::record;
use crate::split::run::reshape;
use crate::split::run::reshape::Adopted;
use std::time::Duration;

/// The first and the longest pause between two attempts.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(15);
/// The same while clients are kept out: a shard that has failed over is noticed at once.
const MAX_BACKOFF_FENCED: Duration = Duration::from_secs(1);

impl Worker {
    /// Sessions may be in the middle of something: the next turn opens new ones.
    pub(super) fn after_error(&mut self, error: SplitError, state: &SplitState, work: Work) {
        self.engine = None;
        // Its operator waits for one of the shards no longer.
        let is_given_up =
            |now: SplitState| !state.target_lost && now.target_lost || !state.source_lost && now.source_lost;
        if transaction(|| row::read(self.id)).is_ok_and(is_given_up) {
            return;
        }
        if matches!(work, Work::Cutover | Work::Rehearse) {
            let Ok(now) = transaction(|| row::read(self.id)) else { return };
            // Behind the decision nothing is given up: the next turn completes it.
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
                // Whoever has taken over, the next turn finds out.
                Ok(_) | Err(SplitError::Superseded | SplitError::Behind { .. }) => return,
                Err(other) => other,
            },
            other => other,
        };
        // What failed is not what the operator wants by now.
        let error = self.with_holders(error);
        let ends = !error.is_transient() && !asked_for_else(self.id, work);
        let failure = error.into_failure();
        if ends && !self.keeps_clients_out() {
            self.write(|| {
                // Whoever has asked for something else since that look is not told of this.
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

    /// Tables have changed: they are taken as they are, once both sides are alike. What the split
    /// waits for until then is told once.
    fn adopt(&mut self, why: Failure) -> Result<Adopted> {
        // A look at both sides may take long.
        let _said = wait::said();
        wait::report(&format!("both sides to be alike: {}", why.message));
        let adopted = self.take_plan().and_then(|tenure| reshape::adopt(&tenure, why));
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

    /// Within a cutover, decided or not, its keys are refused until a worker has brought it to an
    /// end. Nothing ends that worker for good: what is wrong may be mended, and nobody else would
    /// let clients in then.
    fn keeps_clients_out(&self) -> bool {
        transaction(|| row::read(self.id)).is_ok_and(|state| {
            matches!(state.cutover_step, CutoverStep::Disabled | CutoverStep::Decided | CutoverStep::Opened)
        })
    }

    /// A cutover was asked for before this worker began, and longer ago than one may take: its
    /// worker or the master has ended meanwhile. Whoever asked does not expect it any more.
    pub(super) fn is_heard_late(&self, state: &SplitState) -> bool {
        is_overdue(state) && state.cutover_age.is_some_and(|age| age > self.began.elapsed())
    }

    /// A cutover that is given up: it is not asked for any more, and set back at once. What
    /// cannot be set back now is the first that the next turn does.
    fn abandon(&mut self, work: Work, failure: &Failure) {
        let id = self.id;
        let said = self.patiently(|| match work {
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

    /// What an ordinary step stops for, the one before a cutover stops for, too. Were the cutover
    /// given up alone, whoever asks for it again at once would never be told what is wrong.
    pub(super) fn stop_before_cutover(&mut self, phase: Phase, failure: &Failure) {
        self.engine = None;
        let id = self.id;
        self.write(|| {
            record::cutover_aborted(id, failure);
            record::failed(id, phase, failure);
        });
    }

    /// The same where tables have changed: the cutover is given up, while they are copied again or
    /// one waits for the other side. Where they go on as they are, so does it.
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

    /// Which lock was waited for in vain, and for whom. Not while clients wait for the next attempt.
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
        let _said = wait::said();
        wait::report(&format!("retrying after: {}", record::reason(failure)));
        wait::sleep(pause);
    }
}

/// The cutover was asked for longer ago than it may take, or its window is over.
fn is_overdue(state: &SplitState) -> bool {
    match state.cutover_left {
        Some(left) => left.is_zero(),
        None => state.cutover_age.is_some_and(|age| age > guc::cutover_timeout()),
    }
}
