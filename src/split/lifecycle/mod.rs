//! The requests of an operator to a split: each call records a goal, wakes the worker and returns. The same call, made
//! again, resumes from the stored state. What is possible when, and what follows from it, is data: `phases`,
//! `requests`, `work`.

mod conditions;
mod hints;
mod next;
pub mod requests;
mod wait;
pub mod work;

use super::end::ending;
use super::remark::{self, Remark};
use super::{plan, reads, record, reverse};
use crate::agent::error::SplitError;
use crate::catalog::auto_finish::{self, FinishTerms};
use crate::catalog::cutover_request::{self, Wishes};
use crate::catalog::split::{self, ColumnMap};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{self, Goal, Phase};
use crate::catalog::verification::{self, DifferingRows};
use crate::catalog::{lookup, reverse_split, split_accepted, split_progress};
use crate::clean;
use crate::error::{Failure, SqlState};
use crate::server::wake;
use crate::split::phases::{self, TRANSITIONS};
use crate::words::counted;
use requests::{Call, REQUESTS, RequestAnswer};

pub use next::{next_call, next_words};
pub use wait::{wait, wait_for_change};

/// Records a goal and forgets an earlier error.
fn set_goal(id: i64, goal: Goal) {
    split_state::request::goal(id, goal);
    split_progress::resumed(id);
    split::event(id, None, None, &format!("{} requested", goal.as_str()));
    wake::split_on_commit(id);
}

/// Takes the plan's lock and reads the answer in the table of requests; a refusal is an error.
fn ask(id: i64, call: Call) -> Result<(SplitState, RequestAnswer), Failure> {
    let state = row::lock(id)?;
    let Some(answer) = requests::answer(call, &state) else {
        return Err(refusal(id, &state, call));
    };
    match answer {
        RequestAnswer::Refuse(hint) => Err(refusal(id, &state, call).hint(hints::of(id, &state, hint)?)),
        RequestAnswer::RollsBack => Err(rolling_back(id)),
        RequestAnswer::Goal(_)
        | RequestAnswer::AtLeast(_)
        | RequestAnswer::Accept
        | RequestAnswer::Nothing => Ok((state, answer)),
    }
}

fn refusal(id: i64, state: &SplitState, call: Call) -> Failure {
    Failure::new(
        SqlState::NOT_IN_STATE,
        format!("{} is not possible: split {id} is in phase {}", call.name(), state.phase.as_str()),
    )
}

fn rolling_back(id: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("split {id} is being rolled back"))
        .hint(format!("SELECT shard_split_wait({id}, 'rolled_back') waits for its end."))
}

/// Records the answer.
fn record(id: i64, state: &SplitState, answer: RequestAnswer) {
    match answer {
        RequestAnswer::Goal(goal) => set_goal(id, goal),
        RequestAnswer::AtLeast(_) if state.goal == Goal::Backfill => set_goal(id, Goal::Backfill),
        RequestAnswer::AtLeast(goal) => set_goal(id, goal),
        RequestAnswer::Accept
        | RequestAnswer::Nothing
        | RequestAnswer::Refuse(_)
        | RequestAnswer::RollsBack => {}
    }
}

/// Starts a split. `applies_ddl`: whether changes of its tables are applied to the target. None keeps the earlier
/// setting.
pub fn start_dual_write(id: i64, applies_ddl: Option<bool>) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::StartDualWrite)?;
    if let Some(applies) = applies_ddl {
        split_state::request::on_ddl(id, if applies { "replay" } else { "wait" });
    }
    if (state.phase, state.goal) == (Phase::RolledBack, Goal::RolledBack) {
        plan::revive(id)?;
        begins_again(id, state.phase)?;
    }
    record(id, &state, answer);
    Ok(())
}

/// Moves a rolled-back plan to planning. While it is installed anew it holds its shards, and a rollback has to undo
/// what it has installed.
fn begins_again(id: i64, from: Phase) -> Result<(), Failure> {
    record::change_phase(id, from, Phase::Planning, "").map_err(SplitError::into_failure)
}

/// Sets how a column is copied, before the split has begun.
pub fn map(id: i64, table: &str, map: &ColumnMap) -> Result<(), Failure> {
    ask(id, Call::Map)?;
    // The values would change while they are copied, and no trigger sees that.
    if let Some(lookup) = lookup::by_column(id, table, &map.column) {
        let text = format!("lookup index \"{lookup}\" uses column \"{}\" of table \"{table}\"", map.column);
        return Err(Failure::new(SqlState::UNSUPPORTED, text)
            .hint("Remove the table from the lookup index with shard_table_drop(), and add it again once the split is finished."));
    }
    if split::set_map(id, table, map) {
        return Ok(());
    }
    let message = format!("table \"{table}\" is not a table of split {id}");
    Err(Failure::new(SqlState::UNDEFINED_OBJECT, message)
        .hint(format!("SELECT table_name FROM shard_split_tables({id}) lists its tables.")))
}

/// Accepts a remark of the check, before the split has begun.
pub fn accept(id: i64, check_name: &str, object: &str) -> Result<(), Failure> {
    ask(id, Call::Accept)?;
    let Some(remark) = Remark::parse(check_name) else {
        let names = Remark::ALL.map(|remark| format!("\"{}\"", remark.check_name())).join(", ");
        let problem =
            format!("\"{}\" is not a check whose remarks can be accepted", clean::message(check_name));
        return Err(Failure::new(SqlState::INVALID_VALUE, format!("argument \"check_name\" is not valid: {problem}"))
            .hint(format!("It is one of {names}; SELECT check_name, object FROM shard_split_check({id}) WHERE object IS NOT NULL lists the remarks.")));
    };
    let object = remark::object(object);
    if split_accepted::insert(id, remark.check_name(), &object) {
        split::event(id, None, None, &format!("accepted: {}, {object}", remark.check_name()));
    }
    Ok(())
}

pub fn run_backfill(id: i64) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::RunBackfill)?;
    record(id, &state, answer);
    Ok(())
}

pub fn replay_tail(id: i64) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::ReplayTail)?;
    split_state::request::replay_tail(id);
    record(id, &state, answer);
    wake::split_on_commit(id);
    Ok(())
}

/// Requests a cutover. It is refused if rows are known to differ.
pub fn cutover(id: i64, wishes: &Wishes) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::Cutover)?;
    require_alike(id)?;
    if cutover_request::is_over(wishes) {
        return Err(Failure::new(SqlState::INVALID_VALUE, "the window of the cutover ends before it begins")
            .hint("until must be later than now, and later than not_before."));
    }
    cutover_request::ask(id, wishes, false);
    record(id, &state, answer);
    Ok(())
}

/// Requests a rehearsal: all of a cutover up to the decision, which is not made.
pub fn rehearse(id: i64, wishes: &Wishes) -> Result<(), Failure> {
    ask(id, Call::Rehearse)?;
    require_alike(id)?;
    cutover_request::ask(id, wishes, true);
    split::event(id, None, None, "rehearsal of the cutover requested");
    wake::split_on_commit(id);
    Ok(())
}

/// Refuses if rows are known to differ, whenever that was found.
pub fn require_alike(id: i64) -> Result<(), Failure> {
    if let Some(DifferingRows { rows, tables }) = verification::differing(id) {
        return Err(Failure::new(
            SqlState::NOT_IN_STATE,
            format!("split {id} cannot be cut over: {} of {tables} found to differ between its sides", counted(rows, "row", "rows")),
        )
        .detail("Found by shard_split_verify().".to_owned())
        .hint(format!(
            "SELECT * FROM shard_split_verification({id}) shows them. SELECT shard_split_repair({id}) copies them again and verifies their tables."
        )));
    }
    Ok(())
}

pub fn rollback(id: i64, target_lost: bool) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::Rollback)?;
    if phases::is_decided(state.phase) && !target_lost && answer != RequestAnswer::Nothing {
        return Err(refusal(id, &state, Call::Rollback).hint(format!(
            "Its worker opens the target as soon as it can. If the target is gone for good, or another master has rolled the split back: SELECT shard_split_rollback({id}, target_lost => true)."
        )));
    }
    reads::send_back(id, ": it is rolled back")?;
    split_state::request::roll_back(id, target_lost);
    record(id, &state, answer);
    Ok(())
}

/// Requests the reverse split of a split whose cutover has decided, and returns its number. It runs to its end as soon
/// as it can. If it is requested again, it is cut over again. `copy_again`: rows that the split's source has kept may
/// be replaced by others of its target, even without a proof.
pub fn reverse(id: i64, copy_again: bool) -> Result<i64, Failure> {
    // The locks are taken in the order in which a decision takes them.
    let known = reverse_split::of(id)?;
    let back = known.map(|back| row::lock(back.id).map(|state| (back.id, state))).transpose()?;
    let there = ask(id, Call::Reverse)?.0;
    let Some((back, state)) = back else {
        return Err(reverse::has_none(id));
    };
    if there.goal == Goal::Finished {
        split_state::request::forget_finish(id);
    }
    if copy_again {
        split_state::request::allow_copy(back);
    }
    match (state.phase, state.goal) {
        (Phase::Planning, Goal::Planning) => {
            plan::turn_back(id, back)?;
            set_goal(back, Goal::Backfill);
        }
        (Phase::CutoverPending, Goal::Backfill) => {
            require_alike(back)?;
            cutover_request::ask(back, &Wishes::none(), false);
            set_goal(back, Goal::Completed);
        }
        (_, Goal::RolledBack) => return Err(rolling_back(back)),
        // A failed split continues with its earlier goal.
        (_, goal) if state.failed() => set_goal(back, goal),
        _ => {}
    }
    split::event(
        id,
        None,
        None,
        &format!(
            "reversal requested, by split {back}{}",
            if copy_again { ", with a copy if needed" } else { "" }
        ),
    );
    Ok(back)
}

pub fn finish(id: i64, accept_missing: bool, source_lost: bool) -> Result<(), Failure> {
    let (state, answer) = ask(id, Call::Finish)?;
    let back = reverse_split::of(id)?.filter(|back| !back.rests());
    if let Some(back) = back.filter(|back| !back.is_decided()) {
        return Err(reverse::under_way(id, &back));
    }
    // If the split was reversed, no row of it is deleted: its rows are on its source.
    if answer != RequestAnswer::Nothing && back.is_none() {
        split_state::request::finish(id, accept_missing, source_lost);
        match source_lost {
            true => split_state::end::undo_ended(id),
            false if accept_missing => {}
            false => verification::ask_unproven(id),
        }
    }
    record(id, &state, answer);
    Ok(())
}

/// Switches reads of the split's keys before its cutover. They can be switched back in every phase.
pub fn switch_reads(id: i64, to_target: bool) -> Result<(), Failure> {
    if !to_target {
        row::lock(id)?;
        return reads::send_back(id, "");
    }
    ask(id, Call::SwitchReads)?;
    require_alike(id)?;
    if reads::are_on_target(id) { Ok(()) } else { reads::send_to_target(&split::load(id)?) }
}

/// Sets when the split is finished automatically. None means not before it is requested.
pub fn settle_for(id: i64, terms: Option<&FinishTerms>) -> Result<(), Failure> {
    let (_, answer) = ask(id, Call::SettleFor)?;
    if answer == RequestAnswer::Nothing {
        return Ok(());
    }
    if let Some(back) = reverse_split::of(id)?.filter(|back| !back.rests()) {
        return Err(reverse::under_way(id, &back));
    }
    match terms {
        Some(terms) => auto_finish::set(id, terms),
        None if auto_finish::forget(id) => {}
        None => return Ok(()),
    }
    let text = auto_finish::text(id);
    split::event(id, None, None, text.as_deref().unwrap_or("no longer finishes automatically"));
    wake::split_on_commit(id);
    Ok(())
}

/// Requests the finish for the worker, since the configured time has come.
pub fn settle(id: i64) -> Result<(), Failure> {
    let state = row::lock(id)?;
    if work::next(&state) != work::Work::Settle {
        return Ok(());
    }
    auto_finish::forget(id);
    finish(id, false, false)
}

/// Requests that the worker compares every row of both sides.
pub fn verify(id: i64) -> Result<(), Failure> {
    let (state, _) = ask(id, Call::Verify)?;
    // A refused finish is not tried again before the result of the comparison is known.
    if state.failed() && state.goal == Goal::Finished && state.undoable {
        split_state::request::forget_finish(id);
    }
    verification::ask(id);
    split::event(id, None, None, "verification requested");
    wake::split_on_commit(id);
    Ok(())
}

/// Requests that rows that are known to differ are copied again, and returns their number.
pub fn repair(id: i64) -> Result<i64, Failure> {
    ask(id, Call::Repair)?;
    let rows = verification::ask_repair(id);
    split::event(id, None, None, &format!("copying {} again was requested", counted(rows, "row", "rows")));
    wake::split_on_commit(id);
    Ok(rows)
}

/// Removes the last that a finished split has left: its part of the redirect on its source. It runs in the caller's
/// session, which gets the error of what is in the way.
pub fn drop_guard(id: i64, source_lost: bool) -> Result<(), Failure> {
    let asked = ask(id, Call::GuardDrop);
    if let (Err(_), Some(back)) =
        (&asked, reverse_split::of(id)?.filter(|back| !back.rests() && !back.is_decided()))
    {
        return Err(reverse::under_way(id, &back));
    }
    asked?;
    ending::drop_all(id, source_lost)
}

pub fn pause(id: i64) -> Result<(), Failure> {
    ask(id, Call::Pause)?;
    split_state::request::pause(id);
    split::event(id, None, None, "paused");
    wake::split_on_commit(id);
    Ok(())
}

/// Ends a pause; a split that failed is resumed with its earlier goal.
pub fn resume(id: i64) -> Result<(), Failure> {
    let (state, _) = ask(id, Call::Resume)?;
    split_state::request::resume(id);
    if state.failed() {
        set_goal(id, state.goal);
    } else {
        split::event(id, None, None, "resumed");
        wake::split_on_commit(id);
    }
    Ok(())
}

/// A row of shard_split_lifecycle: phase, next phase, call, condition.
type Described = (String, Option<String>, Option<String>, Option<String>);

/// Returns the life cycle of a split for people, from the rows that decide it.
pub fn described() -> Vec<Described> {
    let changes = TRANSITIONS.iter().map(|change| {
        let (from, to) = (change.from.as_str().to_owned(), change.to.as_str().to_owned());
        (from, Some(to), None, Some(change.when.to_owned()))
    });
    let requests = REQUESTS.iter().flat_map(|row| {
        row.phases.iter().map(|phase| {
            let texts = [row.when.text().to_owned(), row.answer.text()];
            let said: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
            let condition = (!said.is_empty()).then(|| said.join(": "));
            let goal = row.answer.goal().map(|goal| goal.as_str().to_owned());
            (phase.as_str().to_owned(), goal, Some(row.call.name().to_owned()), condition)
        })
    });
    changes.chain(requests).collect()
}
