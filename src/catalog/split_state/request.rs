//! Requests to a split, by its operator or because of another split.

use super::{Goal, NO_ERROR, NOT_FAILED, NOT_PAUSED, NOW, update, update_if};

/// Requests a goal; an earlier error is forgotten.
pub fn goal(id: i64, goal: Goal) {
    let asked =
        "cutover_asked_at = CASE $2 WHEN 'completed' THEN clock_timestamp() ELSE cutover_asked_at END";
    let set = ["goal = $2", NO_ERROR, "attempts = 0", NOT_FAILED, asked, BEGUN, NOW];
    update(id, &set, vec![goal.as_str().into()]);
}

const BEGUN: &str = "started_at = coalesce(started_at, clock_timestamp())";

/// Requests a backfill, because of what the worker has found, unless a rollback is requested.
pub fn backfill_again(id: i64) {
    update_if("goal <> 'rolled_back'", id, &["goal = 'backfill'"], vec![]);
}

/// Requests the whole cutover of a split that was requested to copy.
pub fn cutover_of_all(id: i64) {
    let set = ["goal = 'completed'", "cutover_asked_at = clock_timestamp()"];
    update_if("goal = 'backfill'", id, &set, vec![]);
}

/// Records that a cutover or a rehearsal is requested now.
pub fn asked_for_cutover(id: i64) {
    update(id, &["cutover_asked_at = clock_timestamp()"], vec![]);
}

/// Requests that changes are applied now.
pub fn replay_tail(id: i64) {
    update(id, &["tail_requests = tail_requests + 1"], vec![]);
}

/// Sets what happens when a moving table changes: 'wait' or 'replay'.
pub fn on_ddl(id: i64, what: &str) {
    update(id, &["on_ddl = $2"], vec![what.into()]);
}

pub fn pause(id: i64) {
    update(id, &["paused = true", NOW], vec![]);
}

/// Ends a pause. This also requests a cutover again that the pause has held back.
pub fn resume(id: i64) {
    let asked =
        "cutover_asked_at = CASE goal WHEN 'completed' THEN clock_timestamp() ELSE cutover_asked_at END";
    update(id, &["paused = false", NOT_PAUSED, asked, "waiting_for = NULL"], vec![]);
}

/// Used with `goal`: requests a rollback, which no pause holds back.
pub fn roll_back(id: i64, target_lost: bool) {
    update(id, &["target_lost = $2", "paused = false", NOT_PAUSED], vec![target_lost.into()]);
}

/// Withdraws a rollback that the shards' decision has made void.
pub fn forget_rollback(id: i64) {
    update_if("goal = 'rolled_back'", id, &["goal = 'backfill'", NOW], vec![]);
}

/// Ends the request to withdraw a decision: it has been carried out.
pub fn forget_withdrawal(id: i64) {
    let set = ["goal = 'completed'", "target_lost = false", NOW];
    update_if("goal = 'rolled_back' AND phase = 'completed'", id, &set, vec![]);
}

/// Used with `goal`: requests the end. `accept_missing`: rows may be deleted that the target is not known to have.
pub fn finish(id: i64, accept_missing: bool, source_lost: bool) {
    let set = ["accept_missing = $2", "source_lost = $3"];
    update(id, &set, vec![accept_missing.into(), source_lost.into()]);
}

/// Withdraws the finish of a split that is to be reversed: nothing was removed for it yet.
pub fn forget_finish(id: i64) {
    let set =
        ["goal = 'completed'", "activity = 'idle'", "waiting_for = NULL", "attempts = 0", NO_ERROR, NOW];
    update_if("goal = 'finished'", id, &set, vec![]);
}

/// Directs reads of the split's keys to its target, or to its source.
pub fn reads(id: i64, on_target: bool) {
    update(id, &["reads_on_target = $2"], vec![on_target.into()]);
}

/// Records that a reverse split was requested, if its shards are further than this master.
pub fn begin_reverse(id: i64) {
    update(id, &["goal = 'backfill'", BEGUN], vec![]);
}

/// Requests the rollback of a reverse split that is no longer needed: its split ends in another way.
pub fn drop_reverse(id: i64) {
    update(id, &["goal = 'rolled_back'"], vec![]);
}

/// Permits a reverse split to replace rows that were not compared since the cutover.
pub fn allow_copy(id: i64) {
    update(id, &["copy_again = true"], vec![]);
}
