//! What a worker does next for a plan: rows that decide, for the worker that has read the
//! plan and, as SQL, for the coordinator that looks for plans with work.

use crate::catalog::split::State;
use crate::catalog::split_state::{CutoverRequest, CutoverStep, End, Goal, Phase};
use crate::catalog::{cutover_request, redirect, settlement, split_state, verification};
use crate::guc;

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
    /// The same up to the decision, which is not made.
    Rehearse,
    /// The cutover has decided: finish its last steps.
    CompleteCutover,
    /// Ask for the end of a completed split, as its operator has said.
    Settle,
    /// Ask both shards of a completed split whether they still know it.
    Watch,
    /// Compare both sides of a completed split.
    Verify,
    /// Show that nothing is in the way of a finish, before it takes the reverse split away.
    Prove,
    /// Remove the moved rows from the source.
    Finish,
    /// End what the redirect of a finished split is to refuse no longer.
    EndRedirect,
    /// Remove everything from both sides.
    RollBack,
}

impl Work {
    /// It waits until those who move rows have their workers.
    fn is_housekeeping(self) -> bool {
        // Not a comparison, which may take hours and would keep the others from being watched.
        matches!(self, Work::Settle | Work::Watch | Work::EndRedirect)
    }
}

/// What must hold of a split, beside its phase and goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum If {
    Always,
    /// Its cutover is decided and not carried out to its end.
    NotMoved,
    Finished,
    /// Something of a finished split's redirect is to end.
    RedirectDue,
    /// Its end is asked for, and it may still be taken back.
    Undoable,
    /// It is to end by itself, and its time has come.
    SettleDue,
    /// The shards of a completed split are to be asked again.
    WatchDue,
    /// Its sides are to be compared.
    Verifies,
    /// The cutover that is asked for is not to begin yet.
    Later,
    Rehearses,
}

impl If {
    fn holds(self, step: CutoverStep, end: End, request: CutoverRequest) -> bool {
        match self {
            If::Always => true,
            If::NotMoved => step != CutoverStep::Moved,
            If::Finished => end == End::Finished,
            If::RedirectDue => end == End::RedirectDue,
            If::Undoable => end == End::Undoable,
            If::SettleDue => end == End::Settles,
            If::WatchDue => end == End::Due,
            If::Verifies => end == End::Verifies,
            If::Later => request == CutoverRequest::Later,
            If::Rehearses => request == CutoverRequest::Rehearsal,
        }
    }

    fn sql(self) -> String {
        match self {
            If::Always => "true".into(),
            If::NotMoved => format!("p.cutover_step <> '{}'", CutoverStep::Moved.as_str()),
            If::Finished => "p.finished_at IS NOT NULL".into(),
            If::RedirectDue => redirect::is_due(),
            If::Undoable => split_state::IS_UNDOABLE.into(),
            If::SettleDue => settlement::IS_DUE.into(),
            If::Later => cutover_request::IS_LATER.into(),
            If::Rehearses => cutover_request::IS_REHEARSAL.into(),
            If::Verifies => format!("p.finished_at IS NULL AND {}", verification::IS_WANTED),
            If::WatchDue => guc::watch_interval().map_or("false".to_owned(), |interval| {
                format!(
                    "p.finished_at IS NULL AND coalesce(p.watched_at, p.cutover_at)
                                               <= pg_catalog.clock_timestamp() - interval '{} ms'",
                    interval.as_millis()
                )
            }),
        }
    }
}

struct Row {
    phases: &'static [Phase],
    goals: &'static [Goal],
    condition: If,
    work: Work,
}

const fn row(phases: &'static [Phase], goals: &'static [Goal], condition: If, work: Work) -> Row {
    Row { phases, goals, condition, work }
}

const ANY: &[Goal] = Goal::ALL;

/// The first row that fits decides.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(&[Phase::Completed], ANY, If::RedirectDue, Work::EndRedirect),
    row(&[Phase::Completed], ANY, If::Finished, Work::Nothing),
    row(&[Phase::Completed], ANY, If::NotMoved, Work::CompleteCutover),
    row(&[Phase::Completed], &[Goal::Finished], If::Undoable, Work::Prove),
    row(&[Phase::Completed], &[Goal::Finished], If::Always, Work::Finish),
    row(&[Phase::Completed], ANY, If::SettleDue, Work::Settle),
    row(&[Phase::Completed], ANY, If::WatchDue, Work::Watch),
    row(&[Phase::Completed], ANY, If::Verifies, Work::Verify),
    row(&[Phase::Completed], ANY, If::Always, Work::Nothing),
    row(&[Phase::RolledBack], ANY, If::Always, Work::Nothing),
    row(Phase::ALL, &[Goal::RolledBack], If::Always, Work::RollBack),
    row(&[Phase::Planning], &[Goal::Planning], If::Always, Work::Nothing),
    row(&[Phase::Planning], ANY, If::Always, Work::Install),
    row(&[Phase::DualWrite], &[Goal::DualWrite, Goal::Planning], If::Always, Work::Hold),
    row(&[Phase::DualWrite], ANY, If::Always, Work::BeginBackfill),
    row(&[Phase::Backfill], ANY, If::Always, Work::Copy),
    row(&[Phase::CutoverPending], ANY, If::Rehearses, Work::Rehearse),
    row(&[Phase::CutoverPending], ANY, If::Later, Work::Tail),
    row(&[Phase::CutoverPending], &[Goal::Completed, Goal::Finished], If::Always, Work::Cutover),
    row(&[Phase::Tailing, Phase::CutoverPending], ANY, If::Always, Work::Tail),
];

fn find(phase: Phase, goal: Goal, step: CutoverStep, end: End, request: CutoverRequest) -> Option<Work> {
    let fits = |row: &&Row| {
        row.phases.contains(&phase) && row.goals.contains(&goal) && row.condition.holds(step, end, request)
    };
    ROWS.iter().find(fits).map(|row| row.work)
}

/// What is next for a plan. A gap in the rows would be none, and a test looks for it.
pub fn next(state: &State) -> Work {
    find(state.phase, state.goal, state.cutover_step, state.end, state.request).unwrap_or(Work::Nothing)
}

fn any_of<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(|text| format!("'{text}'")).collect::<Vec<_>>().join(", ")
}

/// Which work a plan `p` has, as one SQL expression over the rows: what `of` says of each.
fn case(of: impl Fn(Work) -> bool) -> String {
    let arms: Vec<String> = ROWS
        .iter()
        .map(|row| {
            let phases = any_of(row.phases.iter().map(|phase| phase.as_str()));
            let goals = any_of(row.goals.iter().map(|goal| goal.as_str()));
            format!(
                "WHEN p.phase IN ({phases}) AND p.goal IN ({goals}) AND ({}) THEN {}",
                row.condition.sql(),
                of(row.work)
            )
        })
        .collect();
    format!("CASE {} ELSE false END", arms.join(" "))
}

/// Whether a worker is to be there for a plan `p`. A failed split waits for its operator. A
/// paused one keeps its worker, which knows best what may rest.
pub fn has_work() -> String {
    format!("p.activity <> 'failed' AND {}", case(|work| work != Work::Nothing))
}

/// Whether its work can wait until others have their worker.
pub fn is_housekeeping() -> String {
    case(Work::is_housekeeping)
}

/// Whether it undoes or ends a split.
pub fn ends() -> String {
    case(|work| matches!(work, Work::RollBack | Work::Prove | Work::Finish | Work::CompleteCutover))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[CutoverStep] = CutoverStep::ALL;
    const ENDS: [End; 7] =
        [End::Open, End::Undoable, End::Settles, End::Due, End::Verifies, End::Finished, End::RedirectDue];
    const REQUESTS: [CutoverRequest; 3] =
        [CutoverRequest::Now, CutoverRequest::Later, CutoverRequest::Rehearsal];

    /// Whatever beside phase and goal decides, in all combinations.
    fn all() -> impl Iterator<Item = (CutoverStep, End, CutoverRequest)> {
        let of_step = |step: &'static CutoverStep| {
            ENDS.into_iter().flat_map(move |end| REQUESTS.map(|request| (*step, end, request)))
        };
        STEPS.iter().flat_map(of_step)
    }

    #[test]
    fn every_plan_has_work_or_a_row_that_says_why_not() {
        for &phase in Phase::ALL {
            for &goal in Goal::ALL {
                for (step, end, request) in all() {
                    let found = find(phase, goal, step, end, request);
                    assert!(found.is_some(), "{phase:?} {goal:?} {step:?} {end:?} {request:?}");
                }
            }
        }
    }

    #[test]
    fn every_row_is_the_first_for_some_plan() {
        for (n, row) in ROWS.iter().enumerate() {
            let is_first = |phase: &Phase, goal: &Goal, step: CutoverStep, end: End, request| {
                let fits = |row: &Row| {
                    row.phases.contains(phase)
                        && row.goals.contains(goal)
                        && row.condition.holds(step, end, request)
                };
                ROWS.iter().position(fits) == Some(n)
            };
            let reached = row.phases.iter().any(|phase| {
                row.goals
                    .iter()
                    .any(|goal| all().any(|(step, end, request)| is_first(phase, goal, step, end, request)))
            });
            assert!(reached, "row {n}: {:?}", row.work);
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
