//! Writes of a worker on the master, where another transaction may be in the way.

use crate::agent::error::{Result, SplitError};
use crate::catalog::split;
use crate::catalog::split_state::{Phase, row};
use crate::server::txn::{transaction, try_transaction, with_lock_timeout};
use crate::server::wait;
use crate::split::cutover::{on_master, recovery};
use crate::split::install;
use crate::split::run::Worker;
use crate::split::run::pace::is_lease_due;
use std::time::Instant;

impl Worker {
    /// Writes to the plan's row, which another transaction may hold for as long as it is open: that session is
    /// reported. If a cutover was interrupted, writers of the source do not wait for it, and capture does not take its
    /// worker for dead.
    pub(super) fn retry_on_lock<R>(&self, mut body: impl FnMut() -> Result<R>) -> Result<R> {
        let mut is_open = false;
        let mut renewed = self.lease_renewed;
        let mut before = None;
        loop {
            if let Some(done) = with_lock_timeout(&mut body) {
                return done;
            }
            before.get_or_insert_with(wait::status_scope);
            wait::report(&format!("a lock on the master: {}", transaction(on_master::holders)));
            // If this does not succeed, the next round does it.
            is_open = is_open || self.let_writers_in().is_ok();
            if is_lease_due(renewed) && self.keep_lease().is_ok() {
                renewed = Some(Instant::now());
            }
        }
    }

    /// Does the same for writes that cannot fail.
    pub(super) fn write<R>(&self, mut body: impl FnMut() -> R) -> Option<R> {
        self.retry_on_lock(|| Ok(body())).ok()
    }

    /// Renews the lease in a session of its own, if changes are captured.
    fn keep_lease(&self) -> Result<()> {
        let phase = transaction(|| row::read(self.id))?.phase;
        match phase {
            Phase::DualWrite | Phase::Backfill | Phase::Tailing | Phase::CutoverPending => {
                let (plan, _) = self.read_plan()?;
                install::keep_lease(&plan)
            }
            Phase::Planning | Phase::Completed | Phase::RolledBack => Ok(()),
        }
    }

    fn let_writers_in(&self) -> Result<()> {
        let (state, plan, identity) = try_transaction(|| {
            Ok::<_, SplitError>((row::read(self.id)?, split::load(self.id)?, split::identity()))
        })?;
        if !self.is_in_doubt(&state) {
            return Ok(());
        }
        recovery::let_writers_in(&plan, state.generation, &identity, state.target_lost)
    }
}
