//! What a worker does next for a plan, as rows that decide. The worker that has read the plan and the coordinator that
//! searches plans with work both use them.

use super::conditions::Condition;
use crate::catalog::split_state::row::{self, OpenSplit, SplitState};
use crate::catalog::split_state::{Goal, Phase};

/// What a worker does next for a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// All that was requested is done: the worker ends.
    Nothing,
    /// Install capture and guard.
    Install,
    /// Capture is installed; keep its lease until the copy is requested.
    Hold,
    /// Go from dual_write to backfill.
    BeginBackfill,
    /// Apply a window and copy a chunk.
    Copy,
    /// Apply windows.
    Tail,
    /// Fence, decide, open.
    Cutover,
    /// Do the same up to the decision, which is not made.
    Rehearse,
    /// The cutover has decided: finish its last steps.
    CompleteCutover,
    /// Request the end of a completed split, as its operator has configured.
    Settle,
    /// Ask both shards of a completed split whether they still know it.
    Watch,
    /// Compare both sides of a completed split.
    Verify,
    /// Show that nothing blocks a finish, before it removes the reverse split.
    Prove,
    /// Remove the moved rows from the source.
    Finish,
    /// End the part of a finished split's redirect that is due.
    EndRedirect,
    /// Remove everything from both sides.
    RollBack,
}

impl Work {
    /// Whether the work waits until the splits that move rows have their workers.
    pub fn is_housekeeping(self) -> bool {
        // A comparison is not included: it may take hours and would keep the others from being monitored.
        matches!(self, Work::Settle | Work::Watch | Work::EndRedirect)
    }

    /// Whether the work undoes or ends a split.
    pub fn ends(self) -> bool {
        matches!(self, Work::RollBack | Work::Prove | Work::Finish | Work::CompleteCutover)
    }
}

struct WorkRow {
    phases: &'static [Phase],
    goals: &'static [Goal],
    condition: Condition,
    work: Work,
}

const fn row(phases: &'static [Phase], goals: &'static [Goal], condition: Condition, work: Work) -> WorkRow {
    WorkRow { phases, goals, condition, work }
}

const ANY: &[Goal] = Goal::ALL;

/// The first row that fits decides.
#[rustfmt::skip]
const ROWS: &[WorkRow] = &[
    row(&[Phase::Completed], ANY, Condition::RedirectDue, Work::EndRedirect),
    row(&[Phase::Completed], ANY, Condition::Finished, Work::Nothing),
    row(&[Phase::Completed], &[Goal::RolledBack], Condition::TargetLost, Work::RollBack),
    row(&[Phase::Completed], ANY, Condition::NotMoved, Work::CompleteCutover),
    row(&[Phase::Completed], &[Goal::Finished], Condition::Undoable, Work::Prove),
    row(&[Phase::Completed], &[Goal::Finished], Condition::Always, Work::Finish),
    row(&[Phase::Completed], ANY, Condition::SettleDue, Work::Settle),
    row(&[Phase::Completed], ANY, Condition::WatchDue, Work::Watch),
    row(&[Phase::Completed], ANY, Condition::Verifying, Work::Verify),
    row(&[Phase::Completed], ANY, Condition::Always, Work::Nothing),
    row(&[Phase::RolledBack], ANY, Condition::Always, Work::Nothing),
    row(Phase::ALL, &[Goal::RolledBack], Condition::Always, Work::RollBack),
    row(&[Phase::Planning], &[Goal::Planning], Condition::Always, Work::Nothing),
    row(&[Phase::Planning], ANY, Condition::Always, Work::Install),
    row(&[Phase::DualWrite], &[Goal::DualWrite, Goal::Planning], Condition::Always, Work::Hold),
    row(&[Phase::DualWrite], ANY, Condition::Always, Work::BeginBackfill),
    row(&[Phase::Backfill], ANY, Condition::Always, Work::Copy),
    row(&[Phase::CutoverPending], ANY, Condition::Rehearsing, Work::Rehearse),
    row(&[Phase::CutoverPending], ANY, Condition::CutoverLater, Work::Tail),
    row(&[Phase::CutoverPending], &[Goal::Completed, Goal::Finished], Condition::Always, Work::Cutover),
    row(&[Phase::Tailing, Phase::CutoverPending], ANY, Condition::Always, Work::Tail),
];

fn fits(row: &WorkRow, state: &SplitState) -> bool {
    row.phases.contains(&state.phase) && row.goals.contains(&state.goal) && row.condition.holds(state)
}

fn find(state: &SplitState) -> Option<Work> {
    ROWS.iter().find(|row| fits(row, state)).map(|row| row.work)
}

/// Returns the next work for a plan. A gap in the rows would give Nothing, and a test looks for it.
pub fn next(state: &SplitState) -> Work {
    find(state).unwrap_or(Work::Nothing)
}

/// Returns the work that needs a worker. A failed split waits for its operator. A paused one keeps its worker, which
/// knows best what may be idle.
pub fn wanted(state: &SplitState) -> Option<Work> {
    Some(next(state)).filter(|work| *work != Work::Nothing && !state.failed())
}

/// Whether the split takes one of `shardmaster.max_split_workers`, whatever else is due.
pub fn takes_place(state: &SplitState) -> bool {
    let first = ROWS.iter().find(|row| !row.work.is_housekeeping() && fits(row, state));
    !state.failed() && first.is_some_and(|row| row.work != Work::Nothing)
}

/// Returns the splits that have work, each with its work, the oldest first.
pub fn with_work() -> Vec<(OpenSplit, Work)> {
    row::open().into_iter().filter_map(|open| wanted(&open.state).map(|work| (open, work))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::lifecycle::conditions::tests::states;

    #[test]
    fn every_plan_has_work_or_a_row_that_says_why_not() {
        for state in states() {
            assert!(find(&state).is_some(), "{state:?}");
        }
    }

    #[test]
    fn every_row_is_the_first_for_some_plan() {
        for (n, row) in ROWS.iter().enumerate() {
            let is_first = |state: SplitState| ROWS.iter().position(|row| fits(row, &state)) == Some(n);
            assert!(states().any(is_first), "row {n}: {:?}", row.work);
        }
    }

    #[test]
    fn whoever_has_work_that_somebody_waits_for_takes_a_place() {
        for state in states() {
            let is_waited_for = wanted(&state).is_some_and(|work| !work.is_housekeeping());
            assert!(takes_place(&state) || !is_waited_for, "{state:?}");
            assert!(!takes_place(&state) || wanted(&state).is_some(), "{state:?}");
        }
    }

    #[test]
    fn every_kind_of_work_is_somebodys() {
        let all = [
            Work::Install,
            Work::Hold,
            Work::BeginBackfill,
            Work::Copy,
            Work::Tail,
            Work::Cutover,
            Work::Rehearse,
            Work::CompleteCutover,
            Work::Settle,
            Work::Watch,
            Work::Verify,
            Work::Prove,
            Work::Finish,
            Work::EndRedirect,
            Work::RollBack,
        ];
        for work in all {
            assert!(ROWS.iter().any(|row| row.work == work), "{work:?}");
        }
    }
}
