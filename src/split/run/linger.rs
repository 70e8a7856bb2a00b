//! A worker whose split has cut over stays for a moment: a finish that is requested at once finds its sessions there.

use super::Worker;
use crate::catalog::split_state::Phase;
use crate::catalog::split_state::row::SplitState;
use crate::guc;
use crate::server::txn::transaction;
use crate::server::wait;
use crate::split::lifecycle::work::{self, Work};
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(1);
/// The interval of checks whether another split waits for its place.
const LOOK: Duration = Duration::from_millis(100);

impl Worker {
    /// Waits for a moment while nothing is to be done. Returns false once that is over.
    pub(super) fn lingers(&mut self, state: &SplitState) -> bool {
        let has_cut_over = state.phase == Phase::Completed && !state.finished && self.engine.is_some();
        let since = *self.lingers_since.get_or_insert_with(Instant::now);
        if !has_cut_over || since.elapsed() > LONGEST || transaction(|| are_crowded(self.id)) {
            return false;
        }
        wait::report_idle("waiting for shard_split_finish");
        wait::sleep(LOOK);
        true
    }

    /// Keeps sessions that have lingered for a finish; any other work begins with its own.
    pub(super) fn go_on_with(&mut self, work: Work) {
        if self.lingers_since.is_some() && work != Work::Prove {
            self.engine = None;
            self.lingers_since = None;
        }
    }
}

/// Whether other splits have work for all places that there are.
fn are_crowded(split_id: i64) -> bool {
    let others = work::with_work().into_iter().filter(|(open, _)| open.id != split_id);
    others.count() >= guc::max_split_workers()
}
