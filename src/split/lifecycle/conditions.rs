//! The conditions of a split besides its phase: they decide what its worker does next, and what its operator may
//! request.

use crate::catalog::split_state::row::SplitState;
use crate::catalog::split_state::{CutoverRequest, CutoverStep, Goal, Phase};
use crate::split::phases;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Always,
    /// All that was requested is done.
    AtRest,
    RollingBack,
    /// A cutover, or all of the split, was requested.
    CuttingOver,
    /// The requested cutover is not due yet.
    CutoverLater,
    Rehearsing,
    Failed,
    Finished,
    /// Its end is requested, or it was reversed.
    Finishing,
    /// Its end is requested, and it may still be reversed.
    Undoable,
    /// Its end is requested, and it cannot be reversed any more.
    Ending,
    /// It is the reverse split of another split.
    Reverse,
    /// It is a reverse split that was not requested yet.
    Armed,
    /// Its cutover is decided and not completed.
    NotMoved,
    /// Its cutover is decided, its target has not reported that it is open, and it is no reverse split.
    NotOpened,
    /// The operator has declared that the target is lost.
    TargetLost,
    /// A part of a finished split's redirect is to end.
    RedirectDue,
    /// It is to be finished automatically, and this is due.
    SettleDue,
    /// The shards of a completed split are to be asked again.
    WatchDue,
    /// Its sides are to be compared.
    Verifying,
}

impl Condition {
    pub fn holds(self, state: &SplitState) -> bool {
        match self {
            Condition::Always => true,
            Condition::AtRest => matches!(
                (state.phase, state.goal),
                (Phase::Planning, Goal::Planning) | (Phase::RolledBack, Goal::RolledBack)
            ),
            Condition::RollingBack => state.goal == Goal::RolledBack,
            Condition::CuttingOver => phases::asks_for_cutover(state.goal),
            Condition::CutoverLater => state.request == CutoverRequest::Later,
            Condition::Rehearsing => state.request == CutoverRequest::Rehearsal,
            Condition::Failed => state.failed(),
            Condition::Finished => state.finished,
            Condition::Finishing => state.goal == Goal::Finished,
            Condition::Undoable => state.undoable,
            Condition::Ending => state.goal == Goal::Finished && !state.undoable,
            Condition::Reverse => state.goes_back,
            Condition::Armed => state.goes_back && Condition::AtRest.holds(state),
            Condition::NotMoved => state.cutover_step != CutoverStep::Moved,
            Condition::NotOpened => state.cutover_step == CutoverStep::Decided && !state.goes_back,
            Condition::TargetLost => state.target_lost,
            Condition::RedirectDue => state.redirect_due,
            Condition::SettleDue => state.settle_due,
            Condition::WatchDue => state.watch_due,
            Condition::Verifying => state.verifies,
        }
    }

    /// Returns the condition in the words of shard_split_lifecycle().
    pub fn text(self) -> &'static str {
        match self {
            Condition::Always => "",
            Condition::AtRest => "nothing is requested",
            Condition::RollingBack => "it is being rolled back",
            Condition::CuttingOver => "a cutover is requested",
            Condition::CutoverLater => "its cutover is to begin later",
            Condition::Rehearsing => "a rehearsal is requested",
            Condition::Failed => "it has failed",
            Condition::Finished => "it is finished",
            Condition::Finishing => "its end is requested",
            Condition::Undoable => "its end is requested, and has deleted nothing",
            Condition::Ending => "finish deletes, or it was taken back",
            Condition::Reverse => "it is a reverse split",
            Condition::Armed => "it is an armed reverse split",
            Condition::NotMoved => "its cutover is not carried out to its end",
            Condition::NotOpened => "its cutover has decided, and its target is not open",
            Condition::TargetLost => "its target was declared lost",
            Condition::RedirectDue => "a part of its redirect is to end",
            Condition::SettleDue => "its automatic finish is due",
            Condition::WatchDue => "its shards are to be asked again",
            Condition::Verifying => "its sides are to be compared",
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::catalog::split_state::Activity;

    fn state(phase: Phase, goal: Goal) -> SplitState {
        SplitState {
            phase,
            goal,
            cutover_step: CutoverStep::Moved,
            activity: Activity::Working,
            paused: false,
            target_lost: false,
            source_lost: false,
            finished: false,
            redirect_due: false,
            undoable: false,
            settle_due: false,
            watch_due: false,
            verifies: false,
            repairs: false,
            request: CutoverRequest::Now,
            goes_back: false,
            generation: 1,
            version_cutover: None,
            cutover_age: None,
            cutover_left: None,
            endpoints: String::new(),
            error: None,
        }
    }

    /// Returns plans in each phase with each goal, each plain and with one more condition.
    pub fn states() -> impl Iterator<Item = SplitState> {
        let changes: [fn(&mut SplitState); 13] = [
            |_| {},
            |state| state.activity = Activity::Failed,
            |state| state.finished = true,
            |state| state.goes_back = true,
            |state| state.cutover_step = CutoverStep::Decided,
            |state| state.request = CutoverRequest::Later,
            |state| state.request = CutoverRequest::Rehearsal,
            |state| (state.finished, state.redirect_due) = (true, true),
            |state| state.undoable = state.goal == Goal::Finished,
            |state| state.settle_due = true,
            |state| state.watch_due = true,
            |state| state.verifies = true,
            |state| state.target_lost = true,
        ];
        let plain = Phase::ALL.iter().flat_map(|phase| Goal::ALL.iter().map(|goal| state(*phase, *goal)));
        plain.flat_map(move |plain| {
            changes.map(|change| {
                let mut state = plain.clone();
                change(&mut state);
                state
            })
        })
    }
}
