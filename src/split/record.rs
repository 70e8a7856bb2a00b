//! What a worker records on the master, each in a short transaction.

use super::copy::outcome::StepOutcome;
use super::reads;
use super::table::SplitTable;
use crate::agent::error::{Result, SplitError};
use crate::agent::state::progress::TableProgress;
use crate::catalog::split::Plan;
use crate::catalog::split_progress::{self, ProgressStep};
use crate::catalog::split_state::{Activity, Goal, Phase, cutover, end, plan, request, row, work};
use crate::catalog::{
    auto_finish, cutover_request, event, reverse_split, split, split_ledger, split_sample, verification,
};
use crate::error::{Failure, SqlState};
use crate::placement::tenants;
use crate::routing::change;
use crate::server::{sql, standby};
use crate::split::aborted;
use crate::split::phases::{self, transition};
use crate::{clean, guc};
use std::time::Duration;

/// Takes the next generation for this worker.
pub fn take(id: i64) -> Result<i64> {
    // The shards get it before anything depends on it.
    standby::commit_alone();
    row::lock(id)?;
    work::take(id).ok_or(SplitError::Superseded)
}

/// Catches up with a shard that knows a generation which is not below the worker's, which has seen `seen` of the plan.
/// If the master knows no newer worker, it was restored and has forgotten some: its numbers continue after theirs.
/// Returns false if a newer worker has taken over.
pub fn catch_up_generation(id: i64, shard: &str, seen: i64, known: i64) -> bool {
    let caught_up = work::catch_up(id, seen, known);
    if caught_up {
        let text = format!(
            "shard \"{shard}\" records worker {known} of this split and the master did not: it was restored; continuing as worker {}",
            known + 1
        );
        split::event(id, None, None, &text);
    }
    caught_up
}

/// Records that the shards are further than this master: nothing is left to be moved or deleted.
pub fn finish_was_lost(id: i64) {
    end::finish_was_lost(id);
    split::event(id, None, None, "the shards know a cutover and a finish that this master had lost");
}

/// What the master knows of a requested finish.
pub struct FinishRequest {
    pub version: i64,
    /// The operator accepts that rows are deleted which the target does not have.
    pub accepts: bool,
    /// No row of the scope is left on the source.
    pub is_purged: bool,
}

/// Returns what finish has to know of the plan.
pub fn finish_request(id: i64) -> FinishRequest {
    sql::read_one(
        "SELECT routing_version_cutover, accept_missing, purged_at IS NOT NULL
           FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
        |row| FinishRequest {
            version: row.get(1).unwrap_or_default(),
            accepts: row.value(2),
            is_purged: row.value(3),
        },
    )
    .unwrap_or(FinishRequest { version: 0, accepts: false, is_purged: false })
}

/// Records that both sides are installed.
pub fn installed(id: i64) -> Result<()> {
    let state = row::lock(id)?;
    change_phase(id, state.phase, Phase::DualWrite, "")?;
    work::installed(id);
    split_progress::begin(id);
    Ok(())
}

pub fn backfill_begun(id: i64) -> Result<()> {
    let state = row::lock(id)?;
    change_phase(id, state.phase, Phase::Backfill, "")?;
    work::activity(id, Activity::Working);
    split_progress::copying(id);
    Ok(())
}

/// Returns the phase that a step leads to.
pub fn next_phase(phase: Phase, outcome: &StepOutcome) -> Phase {
    let copied = outcome.progress.is_copied();
    match phase {
        Phase::Backfill if copied => Phase::Tailing,
        Phase::Tailing | Phase::CutoverPending if !copied => Phase::Backfill,
        Phase::Tailing if outcome.lag < guc::max_lag() => Phase::CutoverPending,
        Phase::Planning
        | Phase::DualWrite
        | Phase::Backfill
        | Phase::Tailing
        | Phase::CutoverPending
        | Phase::Completed
        | Phase::RolledBack => phase,
    }
}

/// Records a step: counters as the target has them, and the phase.
pub fn step(
    id: i64,
    generation: i64,
    tables: &[SplitTable],
    outcome: &StepOutcome,
    queue_bytes: i64,
) -> Result<()> {
    let state = row::lock(id)?;
    if state.generation != generation {
        return Err(SplitError::Superseded);
    }
    if let Some(why) = &outcome.restarted {
        split::event_again(id, &format!("the copy starts again: {why}"));
    }
    let (done, all) =
        outcome.progress.tables.iter().map(TableProgress::blocks).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let percent =
        if outcome.progress.is_copied() { 100.0 } else { done as f64 * 100.0 / (all as f64).max(1.0) };
    let next = next_phase(state.phase, outcome);
    // A split that had failed here is followed again.
    let tail_status = (next == Phase::CutoverPending).then_some(if outcome.lag < guc::max_lag() {
        "caught_up"
    } else {
        "running"
    });
    work::does(id, Activity::Working, None);
    let step = ProgressStep {
        rows_copied: outcome.progress.rows_copied(),
        percent,
        last_event_id: outcome.progress.last_event_id,
        last_event_at: outcome.progress.last_event_at,
        tail_status,
        changes: outcome.changes,
        lag: outcome.lag,
        queue_bytes,
    };
    split_progress::step(id, &step);
    let changes = outcome.progress.tables.iter().map(|table| table.changes_applied).sum();
    split_sample::note(id, &step, changes);
    let progress = tables.iter().zip(&outcome.progress.tables);
    let progress: Vec<_> =
        progress.map(|(table, progress)| table_progress(table.policy.ordinal, progress)).collect();
    split_progress::tables(id, &progress);
    enter(id, state.phase, next)?;
    if next == Phase::Backfill && phases::asks_for_cutover(state.goal) {
        // The cutover was requested while this step ran.
        cutover_aborted(id, &aborted::because(aborted::COPIES_AGAIN));
    }
    Ok(())
}

fn table_progress(ordinal: i32, progress: &TableProgress) -> split_progress::ProgressTable {
    let (done, all) = progress.blocks();
    let position = match (progress.is_copied(), progress.chunks) {
        (true, _) => "end".to_owned(),
        (false, 0) => "start".to_owned(),
        (false, _) => format!("block {done} of {all}"),
    };
    split_progress::ProgressTable {
        ordinal,
        position,
        rows_copied: progress.rows_copied,
        changes_applied: progress.changes_applied,
        bytes: progress.bytes,
        chunks: progress.chunks,
    }
}

/// Enters the phase that a step leads to, and records what the phase begins with.
fn enter(id: i64, from: Phase, to: Phase) -> Result<()> {
    if from == to {
        return Ok(());
    }
    change_phase(id, from, to, "")?;
    match to {
        Phase::CutoverPending => {
            work::activity(id, Activity::Idle);
        }
        Phase::Backfill => {
            cutover_request::forget(id);
            reads::send_back(id, ": rows are copied again")?;
            request::backfill_again(id);
        }
        Phase::Tailing | Phase::Planning | Phase::DualWrite | Phase::Completed | Phase::RolledBack => {}
    }
    split_progress::entered(id, to);
    if to == Phase::CutoverPending && reverse_split::there(id).is_some() {
        // A requested reverse split is requested completely.
        request::cutover_of_all(id);
    }
    if to == Phase::CutoverPending {
        event::notify(&serde_json::json!({"event": "caught_up", "split_id": id}));
    }
    Ok(())
}

/// Returns the error as `waiting_for` has it.
pub fn reason(failure: &Failure) -> String {
    failure.in_one_line()
}

/// Records an error that may end without an operator.
pub fn retrying(id: i64, attempts: u32, failure: &Failure) {
    let reason = reason(&failure.cleaned());
    standby::commit_alone();
    work::tries_again(id, attempts, &reason);
    cutover_request::met(id, &reason);
    pgrx::warning!("split {id} is retrying ({attempts}): {}", clean::printable(&failure.message));
}

/// Records that a retried action is running again. Its end shows whether it succeeds.
pub fn under_way(id: i64) {
    standby::commit_alone();
    work::under_way(id);
}

/// Records an error that needs an operator. The worker ends; the same call, made again, resumes from here.
pub fn failed(id: i64, phase: Phase, failure: &Failure) {
    work::failed(id, failure);
    split_progress::failed(id, phase, &clean::printable(&failure.message));
    reads::come_home(id);
    split::event(id, None, None, &format!("failed: {}", failure.message));
    split::notify(id, phase.as_str(), "failed");
}

/// Records an aborted cutover: it is tried again, if its operator has configured that.
pub fn cutover_given_up(id: i64, failure: &Failure) -> Result<()> {
    let state = row::lock(id)?;
    let stands = phases::is_before_decision(state.phase) && phases::asks_for_cutover(state.goal);
    let next = if stands { cutover_request::postpone(id, &failure.message) } else { None };
    match next {
        Some(next) => {
            standby::commit_alone();
            work::does(id, Activity::Idle, None);
            split::event(id, None, None, &format!("{}; {next}", failure.message));
        }
        None => cutover_aborted(id, failure),
    }
    Ok(())
}

/// Records an aborted rehearsal with what would have kept a cutover from its decision.
pub fn rehearsal_given_up(id: i64, failure: &Failure) {
    standby::commit_alone();
    if cutover_request::end_rehearsal(id) {
        work::aborted(id, failure, true);
    }
    split::event(id, None, None, &format!("rehearsal: {}", failure.message));
    split::notify(id, Phase::CutoverPending.as_str(), "gave_up");
}

/// Records a rehearsal that has reached the point where a cutover decides. `fenced`: the time from the first writer
/// that had to wait to the last.
pub fn rehearsed(id: i64, fenced: Duration, waited_for: Option<&str>) {
    standby::commit_alone();
    cutover_request::end_rehearsal(id);
    let milliseconds = split_progress::rehearsed(id, fenced);
    work::done(id);
    let waited_for = waited_for.map_or(String::new(), |who| format!("; it waited for {who}"));
    split::event(
        id,
        None,
        None,
        &format!("rehearsed: writers waited for at most {milliseconds} ms{waited_for}"),
    );
    split::notify(id, Phase::CutoverPending.as_str(), "rehearsed");
}

/// Records that a cutover was aborted; the split continues to follow its source.
pub fn cutover_aborted(id: i64, failure: &Failure) {
    standby::commit_alone();
    cutover_request::forget(id);
    work::aborted(id, failure, false);
    split_progress::follows(id);
    split::event(id, None, None, &failure.message);
    split::notify(id, Phase::CutoverPending.as_str(), "gave_up");
}

/// Returns what a split waits for: what its worker reports now, else what is stored. The text follows "waiting for".
pub fn waiting_words(id: i64) -> Option<String> {
    let query = "SELECT shardmaster.waiting_words(shardmaster.split_waits_for($1))";
    sql::read_one(query, &[id.into()], |row| row.get::<String>(1)).flatten()
}

/// Changes the phase along one of the permitted transitions, and reports it in the event table, on the channel and in
/// the log. The caller holds the plan's lock.
pub fn change_phase(id: i64, from: Phase, to: Phase, detail: &str) -> Result<()> {
    let Some(rule) = transition(from, to) else {
        return Err(Failure::new(
            SqlState::NOT_IN_STATE,
            format!("split {id} cannot go from {} to {}", from.as_str(), to.as_str()),
        )
        .into());
    };
    cutover::phase(id, to);
    let detail = if detail.is_empty() { rule.when } else { detail };
    split::event(id, Some(from), Some(to), detail);
    split::notify(id, to.as_str(), "reached");
    Ok(())
}

/// Records that the cutover has decided, with this version of the routing.
pub fn decided(id: i64, version: i64) -> Result<()> {
    cutover_request::forget(id);
    verification::cut_over(id);
    cutover::decided(id, version);
    change_phase(id, Phase::CutoverPending, Phase::Completed, &format!("routing version {version}"))
}

/// Catches up with phases that a restored master may have lost.
pub fn catch_up_phases(id: i64, phase: Phase) -> Result<()> {
    if phase == Phase::Completed {
        return Err(SplitError::Superseded);
    }
    let mut from = phase;
    for to in phases::between(phase, Phase::Completed) {
        change_phase(id, from, *to, "the shards were further than this master")?;
        from = *to;
    }
    Ok(())
}

/// Records that the shards know a decision, which stands and is adopted.
pub fn rollback_came_too_late(id: i64) -> Result<()> {
    request::forget_rollback(id);
    split::event(
        id,
        None,
        None,
        "the rollback came too late: the shards know of a decided cutover that this master has lost",
    );
    if row::lock(id).is_ok_and(|state| state.phase == Phase::Planning) {
        // Nothing is installed anew, since all of it exists.
        split_progress::begin(id);
        return change_phase(
            id,
            Phase::Planning,
            Phase::DualWrite,
            "the shards were further than this master",
        );
    }
    Ok(())
}

/// Withdraws a decision that no shard has carried out: the keys are routed to the source again, and the split is where
/// it was before the decision, with a rollback requested. `silence`: why the target did not answer; the rollback leaves
/// it out.
pub fn withdrawn(plan: &Plan, generation: i64, silence: Option<&str>) -> Result<()> {
    require_withdrawal(plan.id, generation)?;
    let reason = format!("split {}: its decision was withdrawn", plan.id);
    change::move_keys(&plan.keyspace, &plan.entries, &plan.source.shard_key, plan.id, &reason, None)?;
    split_progress::fenced_in_vain(plan.id);
    cutover::withdrawn(plan.id, silence.is_none());
    if let Some(why) = silence {
        let text = format!("shard \"{}\" did not say whether it is open: {why}", plan.target.shard_key);
        split::event(plan.id, None, None, &text);
    }
    change_phase(plan.id, Phase::Completed, Phase::CutoverPending, "")
}

/// Records that a decision which was to be withdrawn has been carried out, and stands.
pub fn withdrawal_refused(id: i64, generation: i64, why: &str) -> Result<()> {
    require_withdrawal(id, generation)?;
    request::forget_withdrawal(id);
    split::event(id, None, None, &format!("the rollback came too late: {why}"));
    Ok(())
}

/// Locks the plan. Another worker, or another call, may have been faster.
fn require_withdrawal(id: i64, generation: i64) -> Result<()> {
    let state = row::lock(id)?;
    let is_wanted = phases::is_decided(state.phase) && state.goal == Goal::RolledBack;
    if state.generation == generation && is_wanted { Ok(()) } else { Err(SplitError::Superseded) }
}

/// Records that nothing of the split is left on its shards.
pub fn rolled_back(id: i64, target_lost: bool) -> Result<()> {
    let state = row::lock(id)?;
    change_phase(id, state.phase, Phase::RolledBack, "")?;
    end::rolled_back(id);
    split_progress::clear(id);
    cutover_request::forget(id);
    auto_finish::forget(id);
    match reverse_split::there(id) {
        // A requested reverse split had its split's keys.
        Some(there) => reverse_split::pass_keys(id, there),
        None => plan::hold_keys(id, false),
    }
    tenants::cancel_for_split(id);
    split_ledger::removed(id, target_lost.then_some("target"));
    if target_lost {
        split::event(
            id,
            None,
            None,
            "the target was declared lost; shard_cleanup removes what it has of the split",
        );
    }
    Ok(())
}
