//! What an operator may request in which phase, as rows that decide. The first row that fits a call gives its answer.

use super::conditions::Condition;
use crate::catalog::split_state::row::SplitState;
use crate::catalog::split_state::{Goal, Phase};

/// A call of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Map,
    Accept,
    StartDualWrite,
    RunBackfill,
    ReplayTail,
    Cutover,
    Rehearse,
    Rollback,
    Finish,
    GuardDrop,
    Pause,
    Resume,
    Verify,
    Repair,
    Reverse,
    SettleFor,
    SwitchReads,
}

impl Call {
    pub fn name(self) -> &'static str {
        match self {
            Call::Map => "shard_split_map",
            Call::Accept => "shard_split_accept",
            Call::StartDualWrite => "shard_split_start_dual_write",
            Call::RunBackfill => "shard_split_run_backfill",
            Call::ReplayTail => "shard_split_replay_tail",
            Call::Cutover => "shard_split_cutover",
            Call::Rehearse => "shard_split_rehearse",
            Call::Rollback => "shard_split_rollback",
            Call::Finish => "shard_split_finish",
            Call::GuardDrop => "shard_split_redirect_drop",
            Call::Pause => "shard_split_pause",
            Call::Resume => "shard_split_resume",
            Call::Verify => "shard_split_verify",
            Call::Repair => "shard_split_repair",
            Call::Reverse => "shard_split_reverse",
            Call::SettleFor => "shard_split_auto_finish",
            Call::SwitchReads => "shard_split_switch_reads",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestAnswer {
    /// The goal becomes this one.
    Goal(Goal),
    /// The goal becomes this one, unless more was requested already.
    AtLeast(Goal),
    /// The call is accepted, and the goal stays.
    Accept,
    /// There is nothing to do.
    Nothing,
    /// The call is refused, with what to do instead; `{id}` is the split.
    Refuse(&'static str),
    /// The call is refused until the rollback has ended.
    RollsBack,
}

pub struct RequestRow {
    pub call: Call,
    pub phases: &'static [Phase],
    pub when: Condition,
    pub answer: RequestAnswer,
}

const fn row(call: Call, phases: &'static [Phase], when: Condition, answer: RequestAnswer) -> RequestRow {
    RequestRow { call, phases, when, answer }
}

const ANY: &[Phase] = Phase::ALL;
const BEFORE: &[Phase] = &[Phase::Planning, Phase::RolledBack];
const FOLLOWS: &[Phase] = &[Phase::Tailing, Phase::CutoverPending];
/// The phases before the copy was requested.
const NOT_COPYING: &[Phase] = &[Phase::Planning, Phase::DualWrite];
const UNDECIDED: &[Phase] = &[
    Phase::Planning,
    Phase::DualWrite,
    Phase::Backfill,
    Phase::Tailing,
    Phase::CutoverPending,
    Phase::RolledBack,
];
/// The phases after an idle plan and before the decision.
const UNDER_WAY: &[Phase] =
    &[Phase::Planning, Phase::DualWrite, Phase::Backfill, Phase::Tailing, Phase::CutoverPending];

/// Hints that are in several rows.
const OVER: &str = "The split is over. Plan a split in the other direction.";
const RUN_AGAIN: &str = "SELECT shard_split_start_dual_write({id}) runs the plan again.";
/// Hints for a reverse split that is over without a result, or that was not requested.
const ONE_WAY: &str = "This reverse split is over. Finish its split with shard_split_finish({there}), then plan a split in the other direction.";
const BEGINS: &str = "This is a reverse split. SELECT shard_split_reverse({there}) begins it.";
const CATCHES_UP: &str =
    "SELECT shard_split_wait({id}, 'cutover_pending') waits until the target has caught up.";
const CUT_OVER: &str = "The copy is complete. Call shard_split_cutover({id}).";
const RUN_UP_TO_IT: &str =
    "CALL shard_split_run({id}, 'cutover_pending') runs it until the target has caught up.";

use Condition::{
    Always, Armed, AtRest, CuttingOver, Ending, Failed, Finished, Finishing, NotOpened, Reverse, RollingBack,
};
use RequestAnswer::{Accept, AtLeast, Nothing, Refuse, RollsBack};

#[rustfmt::skip]
pub const REQUESTS: &[RequestRow] = &[
    row(Call::Map, BEFORE, Reverse, Refuse("A reverse split has no mapped columns.")),
    row(Call::Map, BEFORE, AtRest, Accept),
    // The start has failed, perhaps because of this setting: the next one checks again.
    row(Call::Map, &[Phase::Planning], Failed, Accept),
    row(Call::Map, &[Phase::Completed], Always, Refuse("The rows have moved.")),
    row(Call::Map, ANY, Always, Refuse("Call shard_split_rollback({id}) first.")),

    row(Call::Accept, BEFORE, Reverse, Refuse("A reverse split has no check of its own.")),
    row(Call::Accept, BEFORE, Always, RequestAnswer::Accept),
    row(Call::Accept, &[Phase::Completed], Always, Refuse("The rows have moved.")),
    row(Call::Accept, ANY, Always, Refuse("The split has begun, so its check is over.")),

    row(Call::StartDualWrite, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::StartDualWrite, &[Phase::Planning], Reverse, Refuse("SELECT shard_split_reverse({there}) begins it. After the finish of split {there}, plan a split in the other direction.")),
    row(Call::StartDualWrite, BEFORE, AtRest, AtLeast(Goal::DualWrite)),
    row(Call::StartDualWrite, ANY, RollingBack, RollsBack),
    row(Call::StartDualWrite, BEFORE, Always, AtLeast(Goal::DualWrite)),
    row(Call::StartDualWrite, &[Phase::DualWrite], Failed, AtLeast(Goal::DualWrite)),
    row(Call::StartDualWrite, &[Phase::DualWrite], Always, Refuse("Capture is installed. Call shard_split_run_backfill({id}).")),
    row(Call::StartDualWrite, &[Phase::Backfill], Always, Refuse("The copy is under way. SELECT shard_split_wait({id}, 'cutover_pending') waits until the target has caught up.")),
    row(Call::StartDualWrite, &[Phase::Tailing], Always, Refuse(CATCHES_UP)),
    row(Call::StartDualWrite, &[Phase::CutoverPending], Always, Refuse(CUT_OVER)),
    row(Call::StartDualWrite, &[Phase::Completed], Finished, Refuse(OVER)),
    row(Call::StartDualWrite, &[Phase::Completed], Always, Refuse("The rows have moved. Call shard_split_finish({id}).")),

    row(Call::RunBackfill, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::RunBackfill, BEFORE, AtRest, Refuse("Call shard_split_start_dual_write({id}) first.")),
    row(Call::RunBackfill, ANY, RollingBack, RollsBack),
    row(Call::RunBackfill, &[Phase::Completed], Finished, Refuse(OVER)),
    row(Call::RunBackfill, &[Phase::Completed], Always, Refuse("The rows have moved. Call shard_split_finish({id}).")),
    row(Call::RunBackfill, FOLLOWS, Failed, RequestAnswer::Goal(Goal::Backfill)),
    row(Call::RunBackfill, &[Phase::Tailing], Always, Refuse(CATCHES_UP)),
    row(Call::RunBackfill, &[Phase::CutoverPending], Always, Refuse(CUT_OVER)),
    row(Call::RunBackfill, ANY, Always, RequestAnswer::Goal(Goal::Backfill)),

    row(Call::ReplayTail, FOLLOWS, RollingBack, Refuse("Changes are applied in the phases tailing and cutover_pending.")),
    row(Call::ReplayTail, FOLLOWS, Failed, RequestAnswer::Goal(Goal::Backfill)),
    row(Call::ReplayTail, FOLLOWS, Always, Accept),
    row(Call::ReplayTail, ANY, Always, Refuse("Changes are applied in the phases tailing and cutover_pending.")),

    row(Call::Cutover, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::Cutover, &[Phase::Planning], Armed, Refuse(BEGINS)),
    row(Call::Cutover, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::Cutover, ANY, RollingBack, RollsBack),
    row(Call::Cutover, &[Phase::CutoverPending], Always, RequestAnswer::Goal(Goal::Completed)),
    row(Call::Cutover, &[Phase::Completed], Finished, Refuse(OVER)),
    row(Call::Cutover, &[Phase::Completed], Always, Refuse("The rows have moved. Call shard_split_finish({id}).")),
    row(Call::Cutover, NOT_COPYING, Always, Refuse(RUN_UP_TO_IT)),
    row(Call::Cutover, ANY, Always, Refuse(CATCHES_UP)),

    row(Call::Rehearse, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::Rehearse, &[Phase::Planning], Armed, Refuse(BEGINS)),
    row(Call::Rehearse, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::Rehearse, ANY, RollingBack, RollsBack),
    row(Call::Rehearse, &[Phase::CutoverPending], CuttingOver, Refuse("A cutover is under way. SELECT shard_split_wait({id}, 'completed') waits for it.")),
    row(Call::Rehearse, &[Phase::CutoverPending], Failed, Refuse("Call shard_split_resume({id}) first.")),
    row(Call::Rehearse, &[Phase::CutoverPending], Always, Accept),
    row(Call::Rehearse, &[Phase::RolledBack], Always, Refuse(RUN_AGAIN)),
    row(Call::Rehearse, NOT_COPYING, Always, Refuse(RUN_UP_TO_IT)),
    row(Call::Rehearse, &[Phase::Completed], Finished, Refuse(OVER)),
    row(Call::Rehearse, &[Phase::Completed], Always, Refuse("The rows have moved. Call shard_split_finish({id}).")),
    row(Call::Rehearse, ANY, Always, Refuse(CATCHES_UP)),

    row(Call::Rollback, &[Phase::RolledBack], AtRest, Nothing),
    row(Call::Rollback, &[Phase::Completed], Finished, Refuse(OVER)),
    // Only without its target: see `rollback`.
    row(Call::Rollback, &[Phase::Completed], NotOpened, RequestAnswer::Goal(Goal::RolledBack)),
    row(Call::Rollback, &[Phase::Completed], Always, Refuse("The cutover has decided. SELECT shard_split_reverse({id}) takes the split back. Without a reverse split, finish it and plan a split in the other direction.")),
    row(Call::Rollback, ANY, Always, RequestAnswer::Goal(Goal::RolledBack)),

    row(Call::Finish, &[Phase::Completed], Finished, Nothing),
    row(Call::Finish, &[Phase::Completed], Always, RequestAnswer::Goal(Goal::Finished)),
    row(Call::Finish, UNDECIDED, Reverse, Refuse("This is a reverse split. SELECT shard_split_finish({there}) ends both splits.")),
    row(Call::Finish, ANY, Always, Refuse("Only a completed split can be finished. CALL shard_split_run({id}) completes it.")),

    row(Call::Reverse, &[Phase::Completed], Finished, Refuse(OVER)),
    row(Call::Reverse, &[Phase::Completed], Ending, Refuse("The split is being finished. Wait with shard_split_wait({id}, 'finished'), then plan a split in the other direction.")),
    row(Call::Reverse, &[Phase::Completed], Always, Accept),
    row(Call::Reverse, ANY, Always, Refuse("Only a completed split can be reversed. Before its cutover, call shard_split_rollback({id}).")),

    row(Call::SettleFor, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::SettleFor, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::SettleFor, ANY, RollingBack, RollsBack),
    row(Call::SettleFor, &[Phase::Completed], Finishing, Nothing),
    row(Call::SettleFor, ANY, Always, Accept),

    row(Call::SwitchReads, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::SwitchReads, &[Phase::Planning], Armed, Refuse(BEGINS)),
    row(Call::SwitchReads, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::SwitchReads, ANY, RollingBack, RollsBack),
    row(Call::SwitchReads, FOLLOWS, Failed, Refuse("Call shard_split_resume({id}) first.")),
    row(Call::SwitchReads, FOLLOWS, Always, Accept),
    row(Call::SwitchReads, &[Phase::RolledBack], Always, Refuse(RUN_AGAIN)),
    row(Call::SwitchReads, NOT_COPYING, Always, Refuse(RUN_UP_TO_IT)),
    row(Call::SwitchReads, &[Phase::Completed], Always, Refuse("Reads already go where writes go.")),
    row(Call::SwitchReads, ANY, Always, Refuse("SELECT shard_split_wait({id}, 'tailing') waits until the target has all rows.")),

    row(Call::GuardDrop, &[Phase::Completed], Finished, Accept),
    row(Call::GuardDrop, UNDECIDED, Always, Refuse("The split has no redirect before its cutover.")),
    row(Call::GuardDrop, ANY, Always, Refuse("The redirect lasts at least until the split is finished. Call shard_split_finish({id}) first.")),

    row(Call::Pause, &[Phase::Completed, Phase::RolledBack], Always, Refuse("There is nothing to pause.")),
    row(Call::Pause, &[Phase::Planning], Armed, Refuse("The reverse split does nothing until shard_split_reverse({there}) begins it.")),
    row(Call::Pause, UNDER_WAY, RollingBack, RollsBack),
    row(Call::Pause, ANY, Always, Accept),

    row(Call::Resume, ANY, Always, Accept),

    row(Call::Verify, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::Verify, &[Phase::Planning], Armed, Refuse(BEGINS)),
    row(Call::Verify, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::Verify, ANY, RollingBack, RollsBack),
    row(Call::Verify, &[Phase::Completed], Finished, Refuse("The source no longer has the rows.")),
    row(Call::Verify, UNDER_WAY, Failed, Refuse("The split has stopped. Fix the error, then call shard_split_resume({id}).")),
    row(Call::Verify, &[Phase::Backfill, Phase::Tailing, Phase::CutoverPending, Phase::Completed], Always, Accept),
    row(Call::Verify, BEFORE, Always, Refuse("There is nothing to compare yet. CALL shard_split_run({id}, 'cutover_pending') copies the rows.")),
    row(Call::Verify, ANY, Always, Refuse("Call shard_split_run_backfill({id}) first.")),

    row(Call::Repair, &[Phase::RolledBack], Reverse, Refuse(ONE_WAY)),
    row(Call::Repair, &[Phase::RolledBack], AtRest, Refuse(RUN_AGAIN)),
    row(Call::Repair, ANY, RollingBack, RollsBack),
    row(Call::Repair, FOLLOWS, Always, Accept),
    row(Call::Repair, &[Phase::Completed], Always, Refuse("Clients write to the target. Correct the rows by hand, on the side that is wrong.")),
    row(Call::Repair, ANY, Always, Refuse("Rows can be copied again in the phases tailing and cutover_pending.")),
];

/// Returns the answer to a call. None is a gap in the table, which a test looks for.
pub fn answer(call: Call, state: &SplitState) -> Option<RequestAnswer> {
    let fits =
        |row: &&RequestRow| row.call == call && row.phases.contains(&state.phase) && row.when.holds(state);
    REQUESTS.iter().find(fits).map(|row| row.answer)
}

impl RequestAnswer {
    /// Returns the goal from then on. Returns None if it stays, or the call is refused.
    pub fn goal(self) -> Option<Goal> {
        match self {
            RequestAnswer::Goal(goal) | RequestAnswer::AtLeast(goal) => Some(goal),
            RequestAnswer::Accept
            | RequestAnswer::Nothing
            | RequestAnswer::Refuse(_)
            | RequestAnswer::RollsBack => None,
        }
    }

    /// Returns what `goal` does not show, for people.
    pub fn text(self) -> String {
        match self {
            RequestAnswer::Goal(_) => String::new(),
            RequestAnswer::AtLeast(_) => "unless more was requested".into(),
            RequestAnswer::Accept => "accepted, the request stays".into(),
            RequestAnswer::Nothing => "accepted, there is nothing to do".into(),
            RequestAnswer::Refuse(hint) => format!("refused: {hint}"),
            RequestAnswer::RollsBack => "refused: the rollback has to end first".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::lifecycle::conditions::tests::states;

    const CALLS: [Call; 17] = [
        Call::Map,
        Call::Accept,
        Call::StartDualWrite,
        Call::RunBackfill,
        Call::ReplayTail,
        Call::Cutover,
        Call::Rehearse,
        Call::Rollback,
        Call::Finish,
        Call::GuardDrop,
        Call::Pause,
        Call::Resume,
        Call::Verify,
        Call::Repair,
        Call::Reverse,
        Call::SettleFor,
        Call::SwitchReads,
    ];

    #[test]
    fn every_call_has_an_answer_in_every_phase() {
        for state in states() {
            for call in CALLS {
                assert!(answer(call, &state).is_some(), "{call:?} {:?} {:?}", state.phase, state.goal);
            }
        }
    }

    #[test]
    fn every_row_is_the_first_for_some_split() {
        for (n, row) in REQUESTS.iter().enumerate() {
            let is_first = |state: SplitState| {
                let fits = |row: &RequestRow| {
                    row.call == REQUESTS[n].call
                        && row.phases.contains(&state.phase)
                        && row.when.holds(&state)
                };
                REQUESTS.iter().position(fits) == Some(n)
            };
            assert!(states().any(is_first), "row {n}: {:?} {:?} {:?}", row.call, row.phases, row.when);
        }
    }

    /// Whatever was requested, a split that is not decided can be undone, and one that is can be finished.
    #[test]
    fn there_is_always_a_way_out() {
        for state in states() {
            let way = if state.phase == Phase::Completed { Call::Finish } else { Call::Rollback };
            let answer = answer(way, &state);
            let is_out = matches!(
                answer,
                Some(RequestAnswer::Goal(Goal::RolledBack | Goal::Finished) | RequestAnswer::Nothing)
            );
            assert!(is_out, "{:?} {:?}: {answer:?}", state.phase, state.goal);
        }
    }
}
