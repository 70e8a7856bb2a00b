//! Waiting for a split.

use super::requests::{self, Call, RequestAnswer};
use super::{hints, work};
use crate::catalog::reverse_split;
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverStep, Goal, Phase};
use crate::error::{Failure, SqlState};
use crate::server::{sql, wait as latch, wake};
use crate::split::phases::{WAY, position};
use crate::split::{record, reverse};
use std::time::{Duration, Instant};

/// The end of the way, after the last phase: nothing of the split is left to do.
const FINISHED: &str = "finished";
const REVERSED: &str = "reversed";

/// Returns the stored error, as the calls that wait raise it.
pub(super) fn stored_error(id: i64, state: &SplitState) -> Failure {
    let mut failure =
        state.error.clone().unwrap_or_else(|| Failure::new(SqlState::INTERNAL, format!("split {id} failed")));
    failure.message = format!("split {id}: {}", failure.message);
    failure
}

/// Raises the error of a split that has failed.
pub(super) fn raise_failure(id: i64, state: &SplitState) -> Result<(), Failure> {
    if state.failed() { Err(stored_error(id, state)) } else { Ok(()) }
}

/// Returns what a split can be run to: the phases after planning, in their order, and its end.
pub(super) fn ways() -> Vec<&'static str> {
    WAY.iter().map(|phase| phase.as_str()).chain([FINISHED]).collect()
}

/// Returns the position of a target on the way.
pub(super) fn position_of(target: &str) -> Option<usize> {
    ways().iter().position(|one| *one == target)
}

/// Whether a split has reached the phase that is waited for, or is further.
pub(super) fn has_reached(state: &SplitState, wanted: &str) -> bool {
    match (wanted, state.phase) {
        (FINISHED, _) => state.finished,
        (REVERSED, _) => false,
        ("rolled_back", Phase::RolledBack) => state.goal == Goal::RolledBack,
        ("rolled_back", _) | (_, Phase::RolledBack) => false,
        // The last steps of a cutover belong to it: clients may write by then.
        ("completed", Phase::Completed) => state.cutover_step == CutoverStep::Moved,
        _ => position_of(wanted).is_some_and(|wanted| position(state.phase) >= Some(wanted)),
    }
}

/// Whether a split was reversed and has left both shards. The reverse split's state shows what delays it.
fn has_gone_back(id: i64, state: &SplitState) -> Result<bool, Failure> {
    let Some(back) = reverse_split::of(id)? else { return Ok(false) };
    let on_its_way = row::read(back.id)?;
    raise_failure(back.id, &on_its_way)?;
    if gave_up(&on_its_way) {
        return Err(stored_error(back.id, &on_its_way));
    }
    Ok(state.finished && back.is_decided())
}

/// Refuses to wait for a split that was reversed: it is over, and its rows are not on its target. A caller that waits
/// for that gets an error, and deletes nothing on the side that it takes for the old one.
pub(super) fn require_not_taken_back(id: i64, state: &SplitState, wanted: &str) -> Result<(), Failure> {
    if !matches!(wanted, "completed" | FINISHED) || state.phase != Phase::Completed {
        return Ok(());
    }
    match reverse_split::of(id)?.filter(|back| back.is_decided()) {
        Some(back) => Err(Failure::new(
            SqlState::NOT_IN_STATE,
            format!("split {id} was taken back by split {}", back.id),
        )
        .hint(format!("SELECT shard_split_wait({id}, 'reversed') waits for its end."))),
        None => Ok(()),
    }
}

/// Whether a requested cutover was aborted.
pub(super) fn gave_up(state: &SplitState) -> bool {
    state.error.is_some() && state.goal == Goal::Backfill && state.phase == Phase::CutoverPending
}

/// Refuses to wait for something that no worker works on any more.
fn require_possible(id: i64, state: &SplitState, wanted: &str) -> Result<(), Failure> {
    let refused = |text: String| {
        let refusal = Failure::new(SqlState::NOT_IN_STATE, text);
        Err(match requests::answer(Call::Rollback, state) {
            Some(RequestAnswer::Refuse(hint)) => refusal.hint(hints::of(id, state, hint)?),
            _ => refusal,
        })
    };
    let is_withdrawn = state.goal == Goal::RolledBack && state.target_lost;
    if state.phase == Phase::Completed && wanted == Phase::RolledBack.as_str() && !is_withdrawn {
        return refused(format!("split {id} is not rolled back: its cutover has decided"));
    }
    if state.finished && wanted == REVERSED && !has_gone_back(id, state)? {
        return refused(format!("split {id} was finished, and cannot be taken back"));
    }
    if state.phase == Phase::Completed && wanted == REVERSED && reverse_split::of(id)?.is_none() {
        return Err(reverse::has_none(id));
    }
    if !state.finished
        && wanted == FINISHED
        && let Some(back) = reverse_split::of(id)?.filter(|back| !back.rests())
    {
        return Err(reverse::under_way(id, &back));
    }
    let is_at_rest = (state.phase, state.goal) == (Phase::RolledBack, Goal::RolledBack);
    if !is_at_rest || wanted == Phase::RolledBack.as_str() {
        return Ok(());
    }
    let refusal = Failure::new(SqlState::NOT_IN_STATE, format!("split {id} was rolled back"));
    Err(if state.goes_back {
        refusal.hint("It was a reverse split, which was dropped, or has ended with its split.".to_owned())
    } else {
        refusal.hint(format!("SELECT shard_split_start_dual_write({id}) runs the plan again."))
    })
}

/// Waits until a split has reached a phase.
pub fn wait(id: i64, wanted: &str, seconds: f64) -> Result<String, Failure> {
    let known: Vec<&str> = ways().into_iter().chain(["rolled_back", REVERSED]).collect();
    if !known.contains(&wanted) {
        return Err(Failure::new(SqlState::INVALID_VALUE, format!("\"{wanted}\" is not a phase of a split"))
            .hint(format!("One of: {}.", known.join(", "))));
    }
    refuse_own_request(id)?;
    let deadline = Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
    loop {
        let state = row::read(id)?;
        require_not_taken_back(id, &state, wanted)?;
        require_possible(id, &state, wanted)?;
        if has_reached(&state, wanted) {
            return Ok(if state.finished { "finished".into() } else { state.phase.as_str().into() });
        }
        raise_failure(id, &state)?;
        if wanted == REVERSED && has_gone_back(id, &state)? {
            return Ok(REVERSED.into());
        }
        if matches!(wanted, "completed" | FINISHED) && gave_up(&state) {
            return Err(stored_error(id, &state));
        }
        if Instant::now() >= deadline {
            return Err(timed_out(id, wanted, &state));
        }
        if sql::keeps_its_snapshot() {
            return Err(Failure::new(
                SqlState::SERIALIZATION_FAILURE,
                "a transaction above READ COMMITTED cannot see the progress of a split",
            )
            .hint("Wait in a transaction of isolation level READ COMMITTED."));
        }
        latch::sleep(Duration::from_millis(20));
    }
}

/// Returns when the state has changed, or after some milliseconds.
pub fn wait_for_change(id: i64, milliseconds: u64) -> Result<(), Failure> {
    let look = || row::read(id).map(|s| (s.phase, s.goal, s.cutover_step, s.failed(), s.finished));
    let (before, deadline) = (look()?, Instant::now() + Duration::from_millis(milliseconds));
    while look()? == before && Instant::now() < deadline {
        latch::sleep(Duration::from_millis(20));
    }
    // If nobody else starts workers, the waiting session does.
    let state = row::read(id)?;
    if !state.failed() && work::next(&state) != work::Work::Nothing {
        wake::missing_split_on_commit(id);
    }
    Ok(())
}

fn timed_out(id: i64, wanted: &str, state: &SplitState) -> Failure {
    let live = record::waiting_words(id).map(|w| format!(", waiting for {w}")).unwrap_or_default();
    Failure::new(
        SqlState::TIMEOUT,
        format!("split {id} has not reached {wanted} in time: it is in phase {}{live}", state.phase.as_str()),
    )
    .hint(format!("SELECT * FROM shard_split_metrics({id}) shows what it does."))
}

/// Refuses a wait for a request of this very transaction, which no other session sees before its end.
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
            format!("the request to split {id} is not committed yet, so no worker acts on it"),
        )
        .hint("Commit first, then wait. Or use CALL shard_split_run()."));
    }
    Ok(())
}
