//! What an operator asks of a split: each call records a goal, wakes the worker and
//! returns. Made again, the same call resumes from the stored state.

use super::phase::{CutoverStep, Goal, Phase};
use super::{ending, plan, record};
use crate::catalog::split::{self, Map, State};
use crate::error::{Failure, SqlState};
use crate::sql;
use crate::worker::{wait, wake};
use std::time::{Duration, Instant};

/// Records a goal and forgets an earlier error.
fn set_goal(id: i64, goal: Goal) {
    sql::write(
        "UPDATE shardmaster.split_plan
            SET goal = $2, error_code = NULL, error_message = NULL, error_detail = NULL, error_hint = NULL,
                attempts = 0,
                activity = CASE activity WHEN 'failed' THEN 'idle' ELSE activity END,
                backfill_status = CASE backfill_status WHEN 'failed' THEN 'running' ELSE backfill_status END,
                tail_status = CASE tail_status WHEN 'failed' THEN 'running' ELSE tail_status END,
                cutover_asked_at = CASE $2 WHEN 'completed' THEN clock_timestamp() ELSE cutover_asked_at END,
                started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
          WHERE id = $1",
        &[id.into(), goal.as_str().into()],
    );
    split::event(id, None, None, &format!("asked for {}", goal.as_str()));
    wake::split_on_commit(id);
}

fn wrong_phase(id: i64, state: &State, call: &str, hint: String) -> Failure {
    Failure::new(
        SqlState::NOT_IN_STATE,
        format!("{call} is not possible: split {id} is in phase {}", state.phase.as_str()),
    )
    .hint(hint)
}

pub fn start_dual_write(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    match (state.phase, state.goal) {
        (Phase::RolledBack, Goal::RolledBack) => plan::revive(id)?,
        (_, Goal::RolledBack) => return Err(rolling_back(id)),
        (Phase::Planning | Phase::RolledBack, _) => {}
        (Phase::DualWrite, _) if state.failed => {}
        (
            Phase::DualWrite | Phase::Backfill | Phase::Tailing | Phase::CutoverPending | Phase::Completed,
            _,
        ) => {
            return Err(wrong_phase(
                id,
                &state,
                "shard_split_start_dual_write",
                format!("Capture is installed; go on with shard_split_run_backfill({id})."),
            ));
        }
    }
    let goal = if state.goal == Goal::Backfill { Goal::Backfill } else { Goal::DualWrite };
    set_goal(id, goal);
    Ok(())
}

/// How a column comes over; before the split has begun.
pub fn map(id: i64, table: &str, map: &Map) -> Result<(), Failure> {
    let state = split::lock(id)?;
    match (state.phase, state.goal) {
        (Phase::Planning, Goal::Planning) | (Phase::RolledBack, Goal::RolledBack) => {}
        // The start has failed, by what was said here perhaps: the next one looks again.
        (Phase::Planning, _) if state.failed => {}
        _ => {
            let hint = format!("Roll it back with shard_split_rollback({id}) first.");
            return Err(wrong_phase(id, &state, "shard_split_map", hint));
        }
    }
    if split::set_map(id, table, map) {
        return Ok(());
    }
    let message = format!("table \"{table}\" is not one of split {id}");
    Err(Failure::new(SqlState::UNDEFINED_OBJECT, message)
        .hint(format!("SELECT table_name FROM shard_split_tables({id}) lists its tables.")))
}

fn rolling_back(id: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("split {id} is being rolled back"))
        .hint(format!("SELECT shard_split_wait({id}, 'rolled_back') waits for its end."))
}

pub fn run_backfill(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    match (state.phase, state.goal) {
        (Phase::RolledBack, Goal::RolledBack) | (Phase::Planning, Goal::Planning) => Err(wrong_phase(
            id,
            &state,
            "shard_split_run_backfill",
            format!("Call shard_split_start_dual_write({id}) first."),
        )),
        (_, Goal::RolledBack) => Err(rolling_back(id)),
        (Phase::Completed, _) => Err(wrong_phase(
            id,
            &state,
            "shard_split_run_backfill",
            format!("The rows have moved; go on with shard_split_finish({id})."),
        )),
        (Phase::Tailing | Phase::CutoverPending, _) if !state.failed => Err(wrong_phase(
            id,
            &state,
            "shard_split_run_backfill",
            "The copy is complete; go on with shard_split_cutover() once the split is in phase cutover_pending.".into(),
        )),
        _ => {
            set_goal(id, Goal::Backfill);
            Ok(())
        }
    }
}

pub fn replay_tail(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    match state.phase {
        Phase::Tailing | Phase::CutoverPending if state.goal != Goal::RolledBack => {
            sql::write(
                "UPDATE shardmaster.split_plan SET tail_requests = tail_requests + 1 WHERE id = $1",
                &[id.into()],
            );
            if state.failed {
                set_goal(id, Goal::Backfill);
            }
            wake::split_on_commit(id);
            Ok(())
        }
        _ => Err(wrong_phase(
            id,
            &state,
            "shard_split_replay_tail",
            "Changes are replayed in the phases tailing and cutover_pending.".into(),
        )),
    }
}

pub fn cutover(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    match (state.phase, state.goal) {
        (Phase::RolledBack, Goal::RolledBack) => Err(wrong_phase(
            id,
            &state,
            "shard_split_cutover",
            format!("SELECT shard_split_start_dual_write({id}) runs the plan again."),
        )),
        (_, Goal::RolledBack) => Err(rolling_back(id)),
        (Phase::CutoverPending, _) => {
            set_goal(id, Goal::Completed);
            Ok(())
        }
        (Phase::Completed, _) => Err(wrong_phase(
            id,
            &state,
            "shard_split_cutover",
            format!("The rows have moved already; go on with shard_split_finish({id})."),
        )),
        _ => Err(wrong_phase(
            id,
            &state,
            "shard_split_cutover",
            format!("SELECT shard_split_wait({id}, 'cutover_pending') waits until the target has caught up."),
        )),
    }
}

pub fn rollback(id: i64, target_lost: bool) -> Result<(), Failure> {
    let state = split::lock(id)?;
    sql::write(
        "UPDATE shardmaster.split_plan SET target_lost = $2 WHERE id = $1",
        &[id.into(), target_lost.into()],
    );
    match (state.phase, state.goal) {
        (Phase::RolledBack, Goal::RolledBack) => Ok(()),
        (Phase::Completed, _) => Err(wrong_phase(
            id,
            &state,
            "shard_split_rollback",
            "The cutover has decided; plan a split in the other direction.".into(),
        )),
        (Phase::Planning, Goal::Planning) => {
            set_goal(id, Goal::RolledBack);
            Ok(())
        }
        _ => {
            set_goal(id, Goal::RolledBack);
            Ok(())
        }
    }
}

pub fn finish(id: i64, accept_missing: bool, source_lost: bool) -> Result<(), Failure> {
    let state = split::lock(id)?;
    if state.phase != Phase::Completed {
        return Err(wrong_phase(
            id,
            &state,
            "shard_split_finish",
            "Only a split whose cutover has decided can be finished.".into(),
        ));
    }
    if !state.finished {
        sql::write(
            "UPDATE shardmaster.split_plan SET accept_missing = $2, source_lost = $3 WHERE id = $1",
            &[id.into(), accept_missing.into(), source_lost.into()],
        );
        set_goal(id, Goal::Finished);
    }
    Ok(())
}

/// Removes the last that a finished split has left: its part of the redirect on its source.
/// In the caller's session, which is told of what is in the way.
pub fn drop_guard(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    if !state.finished {
        return Err(wrong_phase(
            id,
            &state,
            "shard_guard_drop",
            format!("Stale clients are refused until the split is finished: shard_split_finish({id})."),
        ));
    }
    ending::drop_all(id)
}

pub fn pause(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    if matches!(state.phase, Phase::Completed | Phase::RolledBack) {
        return Err(wrong_phase(id, &state, "shard_split_pause", "There is nothing to pause.".into()));
    }
    sql::write(
        "UPDATE shardmaster.split_plan SET paused = true, updated_at = clock_timestamp() WHERE id = $1",
        &[id.into()],
    );
    split::event(id, None, None, "paused");
    wake::split_on_commit(id);
    Ok(())
}

/// Ends a pause; a split that failed is resumed with the goal that it had.
pub fn resume(id: i64) -> Result<(), Failure> {
    let state = split::lock(id)?;
    sql::write(
        "UPDATE shardmaster.split_plan
            SET paused = false, activity = CASE activity WHEN 'paused' THEN 'idle' ELSE activity END,
                -- A cutover that a pause held back is asked for once more by this call.
                cutover_asked_at = CASE goal WHEN 'completed' THEN clock_timestamp() ELSE cutover_asked_at END,
                waiting_for = NULL
          WHERE id = $1",
        &[id.into()],
    );
    if state.failed {
        set_goal(id, state.goal);
    } else {
        split::event(id, None, None, "resumed");
        wake::split_on_commit(id);
    }
    Ok(())
}

/// The stored error, as the calls that wait raise it.
pub fn stored_error(id: i64, state: &State) -> Failure {
    let mut failure =
        state.error.clone().unwrap_or_else(|| Failure::new(SqlState::INTERNAL, format!("split {id} failed")));
    failure.message = format!("split {id}: {}", failure.message);
    failure
}

/// Raises the error of a split that has failed.
pub fn raise_failure(id: i64, state: &State) -> Result<(), Failure> {
    if state.failed { Err(stored_error(id, state)) } else { Ok(()) }
}

/// Whether a split is where it is waited for, or further.
pub fn has_reached(state: &State, wanted: &str) -> bool {
    let rank = |phase: &str| match phase {
        "planning" => 0,
        "dual_write" => 1,
        "backfill" => 2,
        "tailing" => 3,
        "cutover_pending" => 4,
        "completed" => 5,
        _ => 6,
    };
    match (wanted, state.phase) {
        ("finished", _) => state.finished,
        ("rolled_back", Phase::RolledBack) => state.goal == Goal::RolledBack,
        ("rolled_back", _) | (_, Phase::RolledBack) => false,
        // The last steps of a cutover belong to it: clients may write by then.
        ("completed", Phase::Completed) => state.cutover_step == CutoverStep::Moved,
        _ => rank(state.phase.as_str()) >= rank(wanted),
    }
}

/// Waits until a split has reached a phase.
pub fn wait(id: i64, wanted: &str, seconds: f64) -> Result<String, Failure> {
    const KNOWN: [&str; 9] = [
        "planning",
        "dual_write",
        "backfill",
        "tailing",
        "cutover_pending",
        "completed",
        "finished",
        "rolled_back",
        "reversed",
    ];
    if !KNOWN.contains(&wanted) {
        return Err(Failure::new(SqlState::INVALID_VALUE, format!("\"{wanted}\" is no phase of a split"))
            .hint(format!("One of: {}.", KNOWN.join(", "))));
    }
    refuse_own_request(id)?;
    let deadline = Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
    loop {
        let state = split::state(id)?;
        if has_reached(&state, wanted) {
            return Ok(if state.finished { "finished".into() } else { state.phase.as_str().into() });
        }
        raise_failure(id, &state)?;
        let gave_up = matches!(wanted, "completed" | "finished")
            && state.error.is_some()
            && state.goal == Goal::Backfill;
        if gave_up && state.phase == Phase::CutoverPending {
            return Err(stored_error(id, &state));
        }
        if Instant::now() >= deadline {
            return Err(timed_out(id, wanted, &state));
        }
        if sql::keeps_its_snapshot() {
            return Err(Failure::new(
                SqlState::SERIALIZATION_FAILURE,
                "a transaction above READ COMMITTED cannot see a split go on",
            )
            .hint("Wait in a transaction of isolation level READ COMMITTED."));
        }
        wait::sleep(Duration::from_millis(20));
    }
}

/// Returns when the state has changed, or after some milliseconds.
pub fn wait_for_change(id: i64, milliseconds: u64) -> Result<(), Failure> {
    let look = || split::state(id).map(|s| (s.phase, s.goal, s.cutover_step, s.failed, s.finished));
    let (before, deadline) = (look()?, Instant::now() + Duration::from_millis(milliseconds));
    while look()? == before && Instant::now() < deadline {
        wait::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn timed_out(id: i64, wanted: &str, state: &State) -> Failure {
    let live = record::waiting_for(id).map(|w| format!(", waiting for {w}")).unwrap_or_default();
    Failure::new(
        SqlState::TIMEOUT,
        format!("split {id} has not reached {wanted} in time: it is in phase {}{live}", state.phase.as_str()),
    )
    .hint(format!("SELECT * FROM shard_split_metrics({id}) says what it does."))
}

/// A request that this very transaction has made is seen by nobody before its end.
fn refuse_own_request(id: i64) -> Result<(), Failure> {
    let own = sql::read_one(
        "SELECT xmin = (pg_current_xact_id_if_assigned()::text::numeric % 4294967296)::text::xid
           FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
        |row| row.get::<bool>(1).unwrap_or(false),
    );
    if own == Some(true) {
        return Err(Failure::new(
            SqlState::NOT_IN_STATE,
            format!("the request to split {id} is not committed yet, so that nobody works on it"),
        )
        .hint("Commit first, then wait; or use CALL shard_split_run()."));
    }
    Ok(())
}
