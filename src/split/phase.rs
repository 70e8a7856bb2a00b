//! The life of a split as data: which phases there are, which change into which
//! and when, and what a worker does next. Everything that moves a plan goes
//! through `TRANSITIONS`.

use crate::catalog::split_state::{CutoverStep, End, Goal, Phase};

/// An allowed change of phase.
pub struct Transition {
    pub from: Phase,
    pub to: Phase,
    /// What brings it about, for people.
    pub when: &'static str,
}

const fn change(from: Phase, to: Phase, when: &'static str) -> Transition {
    Transition { from, to, when }
}

/// Every allowed change of phase.
pub const TRANSITIONS: &[Transition] = &[
    change(Phase::Planning, Phase::DualWrite, "the check has passed and capture is installed"),
    change(Phase::RolledBack, Phase::DualWrite, "the plan runs again: checked and installed anew"),
    change(Phase::DualWrite, Phase::Backfill, "the copy was asked for"),
    change(Phase::Backfill, Phase::Tailing, "every table is copied"),
    change(Phase::Tailing, Phase::CutoverPending, "the lag is below shardmaster.max_lag"),
    change(Phase::Tailing, Phase::Backfill, "the copy had to start again"),
    change(Phase::CutoverPending, Phase::Backfill, "the copy had to start again"),
    change(Phase::CutoverPending, Phase::Completed, "the cutover has decided"),
    change(Phase::Planning, Phase::RolledBack, "rolled back"),
    change(Phase::DualWrite, Phase::RolledBack, "rolled back"),
    change(Phase::Backfill, Phase::RolledBack, "rolled back"),
    change(Phase::Tailing, Phase::RolledBack, "rolled back"),
    change(Phase::CutoverPending, Phase::RolledBack, "rolled back"),
];

/// The rule that allows the change, if there is one.
pub fn transition(from: Phase, to: Phase) -> Option<&'static Transition> {
    TRANSITIONS.iter().find(|t| t.from == from && t.to == to)
}

/// What a worker does next for a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing was asked for that is not done: the worker ends.
    Nothing,
    /// Install capture and guard.
    Install,
    /// Capture is installed; keep its lease until the copy is asked for.
    Hold,
    /// Go from dual_write to backfill.
    BeginBackfill,
    /// Apply a window and copy a chunk.
    Copy,
    /// Apply windows.
    Tail,
    /// Fence, decide, open.
    Cutover,
    /// The cutover has decided: finish its last steps.
    CompleteCutover,
    /// Ask both shards of a completed split whether they still know it.
    Watch,
    /// Remove the moved rows from the source.
    Finish,
    /// End what the redirect of a finished split is to refuse no longer.
    EndRedirect,
    /// Remove everything from both sides.
    RollBack,
}

/// The one place that says what follows from phase and goal.
pub fn next_work(phase: Phase, goal: Goal, step: CutoverStep, end: End) -> Work {
    match (phase, goal, end) {
        (Phase::Completed, _, End::Finished) => Work::Nothing,
        (Phase::Completed, _, End::RedirectDue) => Work::EndRedirect,
        (Phase::Completed, _, _) if step != CutoverStep::Moved => Work::CompleteCutover,
        (Phase::Completed, Goal::Finished, _) => Work::Finish,
        (Phase::Completed, _, End::Due) => Work::Watch,
        (Phase::Completed, _, End::Open) => Work::Nothing,
        _ => next_work_before_the_end(phase, goal),
    }
}

fn next_work_before_the_end(phase: Phase, goal: Goal) -> Work {
    match (phase, goal) {
        (Phase::Completed, _) => Work::Nothing,
        (Phase::RolledBack, Goal::RolledBack | Goal::Planning) => Work::Nothing,
        (_, Goal::RolledBack) => Work::RollBack,
        (Phase::Planning, Goal::Planning) => Work::Nothing,
        (Phase::Planning | Phase::RolledBack, _) => Work::Install,
        (Phase::DualWrite, Goal::DualWrite | Goal::Planning) => Work::Hold,
        (Phase::DualWrite, _) => Work::BeginBackfill,
        (Phase::Backfill, _) => Work::Copy,
        (Phase::CutoverPending, Goal::Completed | Goal::Finished) => Work::Cutover,
        (Phase::Tailing | Phase::CutoverPending, _) => Work::Tail,
    }
}
