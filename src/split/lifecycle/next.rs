//! The next call: on the way to a phase, and for people who look at a split.

use super::requests::Call;
use super::wait::{
    gave_up, has_reached, position_of, raise_failure, require_not_taken_back, stored_error, ways,
};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverStep, Goal, Phase};
use crate::catalog::{reverse_split, verification};
use crate::error::{Failure, SqlState};
use crate::split::phases;

/// A row for the next call on the way to a phase: the phase and goal of the split, and the phase beyond which it is to
/// come.
struct NextCall {
    phases: &'static [Phase],
    goal: Goal,
    /// `None` if the wanted phase does not matter.
    beyond: Option<Phase>,
    call: Call,
}

#[rustfmt::skip]
const NEXT: &[NextCall] = &[
    NextCall { phases: &[Phase::RolledBack], goal: Goal::RolledBack, beyond: None, call: Call::StartDualWrite },
    NextCall { phases: &[Phase::Planning], goal: Goal::Planning, beyond: None, call: Call::StartDualWrite },
    NextCall { phases: &[Phase::Planning, Phase::RolledBack, Phase::DualWrite], goal: Goal::DualWrite, beyond: Some(Phase::DualWrite), call: Call::RunBackfill },
    NextCall { phases: &[Phase::CutoverPending], goal: Goal::Backfill, beyond: Some(Phase::CutoverPending), call: Call::Cutover },
    NextCall { phases: &[Phase::Completed], goal: Goal::Completed, beyond: Some(Phase::Completed), call: Call::Finish },
];

/// Returns the next call on the way to a position on `phases::WAY`, whose end is `finished`. Returns None while the
/// worker is working.
fn next(phase: Phase, goal: Goal, wanted: usize) -> Option<Call> {
    let is_beyond = |row: &NextCall| row.beyond.and_then(phases::position).is_none_or(|at| wanted > at);
    let fits = |row: &&NextCall| row.phases.contains(&phase) && row.goal == goal && is_beyond(row);
    NEXT.iter().find(fits).map(|row| row.call)
}

/// Returns the next call on the way to `until`: None if the split is there, `""` while the worker is working. Raises
/// the split's error if it has failed, unless this is the call that resumes it.
pub fn next_call(id: i64, until: &str, resumes: bool) -> Result<Option<&'static str>, Failure> {
    let state = row::read(id)?;
    if until == Phase::RolledBack.as_str() {
        return next_call_back(id, &state);
    }
    let Some(wanted) = position_of(until).filter(|at| *at > 0) else {
        return Err(Failure::new(
            SqlState::INVALID_VALUE,
            format!("\"{until}\" is not a phase that a split can be run to"),
        )
        .hint(format!("One of: {}, rolled_back.", ways()[1..].join(", "))));
    };
    require_not_taken_back(id, &state, until)?;
    require_not_rolling_back(id, &state, resumes)?;
    if has_reached(&state, until) {
        return Ok(None);
    }
    // A split that is paused meanwhile is waited for: whoever paused it is working on it.
    if state.paused && resumes {
        let text = format!("split {id} is paused");
        let hint = format!("SELECT shard_split_resume({id}) resumes it. Then the same call runs it.");
        return Err(Failure::new(SqlState::NOT_IN_STATE, text).hint(hint));
    }
    if state.failed() && resumes {
        return Ok(Some(Call::Resume.name()));
    }
    raise_failure(id, &state)?;
    if gave_up(&state) && !resumes {
        // The caller gets the error, and may call again.
        return Err(stored_error(id, &state));
    }
    Ok(Some(next(state.phase, state.goal, wanted).map_or("", Call::name)))
}

/// Refuses if another session has rolled the split back meanwhile. A plan that was idle when this began runs again.
fn require_not_rolling_back(id: i64, state: &SplitState, begins: bool) -> Result<(), Failure> {
    let is_at_rest = state.phase == Phase::RolledBack;
    if state.goal != Goal::RolledBack || is_at_rest && begins {
        return Ok(());
    }
    let text = if is_at_rest {
        format!("split {id} was rolled back meanwhile")
    } else {
        format!("split {id} is being rolled back")
    };
    Err(Failure::new(SqlState::NOT_IN_STATE, text).hint(format!(
        "CALL shard_split_run({id}, 'rolled_back') waits until it ends. After that the plan can be run again."
    )))
}

/// Returns the next call on the way to a rollback; after its cutover the rollback itself reports what is possible.
fn next_call_back(id: i64, state: &SplitState) -> Result<Option<&'static str>, Failure> {
    if has_reached(state, Phase::RolledBack.as_str()) {
        return Ok(None);
    }
    if state.goal != Goal::RolledBack {
        return Ok(Some(Call::Rollback.name()));
    }
    raise_failure(id, state)?;
    Ok(Some(""))
}

/// Returns the call to type now. Returns None if there is nothing to do, or the worker does it.
pub fn next_words(id: i64) -> Result<Option<String>, Failure> {
    let state = row::read(id)?;
    let call = match &state {
        state if state.finished || state.phase == Phase::RolledBack && !state.failed() => return Ok(None),
        state if state.failed() => return Ok(after_failure(id, state)),
        state if state.paused => Some(Call::Resume),
        // The last steps of its cutover are the worker's.
        state if phases::is_decided(state.phase) && state.cutover_step == CutoverStep::Decided => None,
        // The split is being reversed.
        state
            if phases::is_decided(state.phase)
                && reverse_split::of(id)?.is_some_and(|back| !back.rests()) =>
        {
            None
        }
        // This is an idle reverse split.
        state if state.goes_back && (state.phase, state.goal) == (Phase::Planning, Goal::Planning) => None,
        state if !phases::is_decided(state.phase) && verification::differing(id).is_some() => {
            Some(Call::Repair)
        }
        state => next(state.phase, state.goal, phases::WAY.len()),
    };
    Ok(call.map(|call| words(call, id)))
}

/// Returns the call for a split that has failed. Another attempt does not repair everything: the error's hint names
/// what does. Returns None if the operator must choose, since something is lost by it.
fn after_failure(id: i64, state: &SplitState) -> Option<String> {
    let hint = state.error.as_ref().and_then(|failure| failure.hint.as_deref()).unwrap_or_default();
    let rollback = format!("SELECT shard_split_rollback({id})");
    let check = format!("SELECT * FROM shard_split_check({id})");
    let is_lossy = ["accept_missing", "source_lost", "target_lost", "copy_again", "shard_split_reverse("];
    if hint.contains("shard_split_resume(") {
        Some(words(Call::Resume, id))
    } else if hint.contains(&check) {
        Some(check)
    } else if is_lossy.iter().any(|choice| hint.contains(choice))
        || state.goes_back && hint.contains(&rollback)
    {
        None
    } else if hint.contains(&rollback) && !phases::is_decided(state.phase) {
        Some(rollback)
    } else {
        Some(words(Call::Resume, id))
    }
}

fn words(call: Call, id: i64) -> String {
    format!("SELECT {}({id})", call.name())
}
