//! Which call is accepted in which phase: docs/reference/phases.md as a function.

use super::model::{Phase, SplitView};

/// A call for one split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    StartDualWrite,
    RunBackfill,
    ReplayTail,
    Cutover,
    Rollback,
    Finish,
    Pause,
    Resume,
    GuardDrop,
}

impl Call {
    pub const ALL: [Call; 9] = [
        Call::StartDualWrite,
        Call::RunBackfill,
        Call::ReplayTail,
        Call::Cutover,
        Call::Rollback,
        Call::Finish,
        Call::Pause,
        Call::Resume,
        Call::GuardDrop,
    ];

    pub fn function(self) -> &'static str {
        match self {
            Call::StartDualWrite => "shard_split_start_dual_write",
            Call::RunBackfill => "shard_split_run_backfill",
            Call::ReplayTail => "shard_split_replay_tail",
            Call::Cutover => "shard_split_cutover",
            Call::Rollback => "shard_split_rollback",
            Call::Finish => "shard_split_finish",
            Call::Pause => "shard_split_pause",
            Call::Resume => "shard_split_resume",
            Call::GuardDrop => "shard_split_redirect_drop",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// The call is refused with 55000, because the phase does not allow it.
    Refused,
    /// The split is planned again, so the call is accepted if the plan would be.
    AsPlan,
}

fn accepted(yes: bool) -> Answer {
    if yes { Answer::Accepted } else { Answer::Refused }
}

/// Returns the answer to the call in one state.
fn answer(call: Call, seen: &SplitView) -> Answer {
    let (phase, is_back) = (seen.phase, seen.is_rolling_back());
    let rests = phase == Phase::RolledBack && is_back;
    match call {
        Call::StartDualWrite if rests && seen.reverse_of.is_none() => Answer::AsPlan,
        Call::StartDualWrite => {
            let is_new = matches!(phase, Phase::Planning | Phase::RolledBack) && seen.reverse_of.is_none();
            accepted(!is_back && (is_new || phase == Phase::DualWrite && seen.is_failed))
        }
        Call::RunBackfill => {
            let was_started = !(phase == Phase::Planning && seen.goal == "planning");
            let is_copied = matches!(phase, Phase::Tailing | Phase::CutoverPending) && !seen.is_failed;
            accepted(was_started && !is_back && phase != Phase::Completed && !is_copied)
        }
        Call::ReplayTail => accepted(matches!(phase, Phase::Tailing | Phase::CutoverPending) && !is_back),
        Call::Cutover => accepted(phase == Phase::CutoverPending && !is_back),
        Call::Rollback => accepted(phase != Phase::Completed),
        Call::Finish => accepted(phase == Phase::Completed && !seen.is_taken_back),
        Call::Pause => {
            let waits = seen.reverse_of.is_some() && phase == Phase::Planning && seen.goal == "planning";
            accepted(!is_back && !waits && !matches!(phase, Phase::Completed | Phase::RolledBack))
        }
        Call::Resume => Answer::Accepted,
        Call::GuardDrop => accepted(seen.is_finished),
    }
}

/// Returns the possible answers of a split that was seen before and after the call, and has made progress meanwhile.
pub fn answers(call: Call, before: &SplitView, after: &SplitView) -> Vec<Answer> {
    let between = Phase::ALL.iter().map(|(_, phase)| *phase);
    let between = between.filter(|phase| *phase > before.phase && *phase < after.phase);
    let passed = between.map(|phase| SplitView { phase, ..before.clone() });
    // If the call was accepted, the state that is seen afterwards is its effect.
    let unasked = SplitView { goal: before.goal.clone(), ..after.clone() };
    let mut answers: Vec<Answer> = [before.clone(), after.clone(), unasked]
        .into_iter()
        .chain(passed)
        .map(|seen| answer(call, &seen))
        .collect();
    answers.dedup();
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(phase: Phase, goal: &str) -> SplitView {
        let (is_moved, is_failed, is_finished) = (false, false, false);
        let (error, reverse_of, is_taken_back) = (None, None, false);
        let goal = goal.into();
        SplitView { id: 1, phase, goal, is_moved, is_failed, is_finished, error, reverse_of, is_taken_back }
    }

    #[test]
    fn nothing_goes_back_behind_the_decision() {
        let done = seen(Phase::Completed, "completed");
        assert_eq!(answers(Call::Rollback, &done, &done), [Answer::Refused]);
        assert_eq!(answers(Call::Finish, &done, &done), [Answer::Accepted]);
        let taken_back = SplitView { is_taken_back: true, ..done.clone() };
        assert_eq!(answers(Call::Finish, &taken_back, &taken_back), [Answer::Refused]);
        assert_eq!(answers(Call::Finish, &taken_back, &done), [Answer::Refused, Answer::Accepted]);
    }

    #[test]
    fn what_timing_decides_may_be_either() {
        let (before, after) = (seen(Phase::Backfill, "backfill"), seen(Phase::CutoverPending, "backfill"));
        let answers = answers(Call::Cutover, &before, &after);
        assert!(answers.contains(&Answer::Accepted) && answers.contains(&Answer::Refused));
    }
}
