//! How a worker attaches to its shards: it takes a generation first, then handles what an earlier worker has left in
//! the middle of a cutover.

use crate::agent::error::{Result, SplitError};
use crate::agent::state::epoch::Tenure;
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::CutoverStep;
use crate::catalog::split_state::row::{self, SplitState};
use crate::error::Failure;
use crate::server::txn::{transaction, try_transaction};
use crate::server::wait;
use crate::split::cutover::recovery::{self, Reverted};
use crate::split::engine::Engine;
use crate::split::plan::check;
use crate::split::run::Worker;
use crate::split::run::pace::renew_lease;
use crate::split::{analyze, install, phases, record};

impl Worker {
    /// Whether an earlier worker, or this one with sessions that it has lost, was within a cutover.
    pub(super) fn is_in_doubt(&self, state: &SplitState) -> bool {
        self.engine.is_none()
            && phases::is_before_decision(state.phase)
            && state.cutover_step != CutoverStep::None
    }

    /// Undoes a cutover, before anything else, and without a target that may be away: writers of the source wait for
    /// it. If only the target knows whether it has decided, the target is asked.
    pub(super) fn revert(&mut self, state: &SplitState) -> Result<Reverted> {
        let id = self.id;
        let tenure = self.take_plan()?;
        wait::report("the cutover to be undone on the source");
        let outcome = recovery::revert(&tenure, state.target_lost)?;
        if outcome == Reverted::AskTarget {
            let now = transaction(|| row::read(self.id))?;
            self.attached(&now).map_err(|error| ask_target(error, id))?;
        }
        Ok(outcome)
    }

    /// Returns the engine, and attaches it to both sides if needed.
    pub(super) fn attached(&mut self, state: &SplitState) -> Result<&mut Engine> {
        if self.engine.is_none() {
            let tenure = self.take_plan()?;
            let mut engine = match Engine::attach(&tenure) {
                Err(SplitError::NotInstalled(why)) => return Err(self.install_again(state, &tenure, why)?),
                attached => attached?,
            };
            if self.attempts > 0 {
                self.write(|| record::under_way(self.id));
            }
            if !phases::is_decided(state.phase) {
                engine.create_window_tables()?;
            }
            recovery::settle(&engine.tenure, &mut engine.sessions, state)?;
            self.engine = Some(engine);
            // The recovery may have changed the plan, so it is read again.
            let now = transaction(|| row::read(self.id))?;
            if now.phase != state.phase {
                return Err(read_again());
            }
        }
        self.engine.as_mut().ok_or(SplitError::Superseded)
    }

    /// Analyzes the target's tables with the plan of the engine, and attaches the engine if needed. Returns false if
    /// some tables are left.
    pub(super) fn analyze_target(&mut self, state: &SplitState) -> Result<bool> {
        let Engine { tenure, sessions, analyzed, .. } = self.attached(state)?;
        Ok(analyze::run(&tenure.plan, &mut sessions.target, analyzed))
    }

    /// Renews the lease with the engine's session, and attaches the engine if needed.
    pub(super) fn renew_own_lease(&mut self, state: &SplitState) -> Result<()> {
        let mut renewed = self.lease_renewed;
        let Engine { tenure, sessions, .. } = self.attached(state)?;
        renew_lease(tenure, sessions, &mut renewed)?;
        self.lease_renewed = renewed;
        Ok(())
    }

    /// Handles a shard that does not know the split: the master was restored to a time before the split ended, or the
    /// shard to a time before the installation.
    fn install_again(&self, state: &SplitState, tenure: &Tenure, why: Failure) -> Result<SplitError> {
        let version = state.version_cutover.unwrap_or_default();
        let has_ended = if phases::is_decided(state.phase) {
            recovery::adopt_finish(&tenure.plan, version, &tenure.identity)?
        } else {
            recovery::adopt_finished(tenure)?
        };
        if has_ended {
            return Ok(read_again());
        }
        // Nothing is copied yet.
        if phases::is_only_installed(state.phase) && !state.goes_back {
            check::require_again(&tenure.plan, &tenure.identity)?;
            install::install(tenure)?;
            let text = format!("installed again: {}", why.message);
            transaction(|| split::event(self.id, None, None, &text));
            return Ok(read_again());
        }
        // Another life of this master, which did not know the decision, may have rolled the split back.
        let may_be_undone = phases::is_decided(state.phase) && state.cutover_step == CutoverStep::Decided;
        let why = if may_be_undone && !state.goes_back { why.hint(undone(self.id)) } else { why };
        Ok(SplitError::NotInstalled(why))
    }

    /// Takes the plan for this worker: the generation is raised on the master before anything on a shard is read.
    pub(super) fn take_plan(&self) -> Result<Tenure> {
        self.retry_on_lock(|| take(self.id))
    }

    /// Reads the plan, without taking it.
    pub(super) fn read_plan(&self) -> Result<(Plan, String)> {
        try_transaction(|| Ok((split::load(self.id)?, split::identity())))
    }
}

fn undone(id: i64) -> String {
    format!(
        "If it was restored, keep clients off it and restore it to a time after the cutover. If another master has rolled the split back: SELECT shard_split_rollback({id}, target_lost => true)."
    )
}

fn read_again() -> SplitError {
    SplitError::Retry("the plan to be read again".into())
}

/// Takes the plan, within a transaction.
fn take(id: i64) -> Result<Tenure> {
    let generation = record::take(id)?;
    Ok(Tenure { plan: split::load(id)?, generation, identity: split::identity() })
}

/// Explains the wait to the operator, if a decision may be forgotten.
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
