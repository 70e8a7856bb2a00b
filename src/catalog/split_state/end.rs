//! How a split ends: rolled back, finished, taken back; and what is left of its redirect.

use super::{NO_ERROR, NOT_FAILED, NOW, update, update_if};

/// Nothing of it is left on its shards.
pub fn rolled_back(id: i64) {
    let set = [
        "activity = 'idle'",
        "waiting_for = NULL",
        NO_ERROR,
        "attempts = 0",
        "worker_pid = NULL",
        "cutover_step = 'none'",
        "fenced_since = NULL",
        "paused = false",
        "target_lost = false",
    ];
    update(id, &set, vec![]);
}

/// From here on a split that is being finished cannot be taken back.
pub fn undo_ended(id: i64) {
    update(id, &["undo_ended_at = clock_timestamp()"], vec![]);
}

/// The last moved row has left the source.
pub fn purged(id: i64) {
    update(id, &["purged_at = clock_timestamp()", NOW], vec![]);
}

/// Rows are there again.
pub fn not_purged(id: i64) {
    update(id, &["purged_at = NULL"], vec![]);
}

/// The shards are further than this master: nothing is left to be moved or deleted.
pub fn finish_was_lost(id: i64) {
    let set = [
        "cutover_step = 'moved'",
        "fenced_since = NULL",
        "goal = 'finished'",
        "purged_at = clock_timestamp()",
        "undo_ended_at = clock_timestamp()",
    ];
    update(id, &set, vec![]);
}

pub fn finished(id: i64) {
    let set = [
        "finished_at = clock_timestamp()",
        NOW,
        "activity = 'idle'",
        "waiting_for = NULL",
        "attempts = 0",
        "worker_pid = NULL",
    ];
    update(id, &set, vec![]);
}

/// In the commit that decides its reverse split: nothing is left to do but to leave both shards. A
/// master that was restored may have forgotten that the split was decided: it is undone.
pub fn taken_back(id: i64) {
    let set = [
        "goal = CASE phase WHEN 'completed' THEN 'finished' ELSE 'rolled_back' END",
        "undo_ended_at = clock_timestamp()",
        "activity = 'idle'",
        "waiting_for = NULL",
        NO_ERROR,
        NOW,
    ];
    update_if("finished_at IS NULL", id, &set, vec![]);
}

/// From now on the source redirects clients of what has left.
pub fn redirects(id: i64) {
    update(id, &["redirect_since = clock_timestamp()", "redirect_ending = false"], vec![]);
}

/// A worker is to end a part of the redirect, at once.
pub fn end_redirect(id: i64) {
    let set = ["redirect_ending = true", "watched_at = NULL", "attempts = 0", NOT_FAILED];
    update(id, &set, vec![]);
}

/// Whether a part is to be ended is what the redirect's entries say.
pub fn redirect_ended(id: i64) {
    let set = "redirect_ending = EXISTS (SELECT 1 FROM shardmaster.redirect r
                                          WHERE r.split_id = split_plan.id AND (r.ending OR r.asked_of IS NOT NULL))";
    update(id, &[set], vec![]);
}

/// Whether a finished split redirects nobody any more.
pub fn redirect_is_over(id: i64) -> bool {
    let is_over = "finished_at IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM shardmaster.redirect r WHERE r.split_id = split_plan.id)";
    let set = ["redirect_since = NULL", "redirect_ending = false", "guard_dropped_at = clock_timestamp()"];
    update_if(is_over, id, &set, vec![])
}

/// A part of the redirect has been ended: nothing is waited for.
pub fn redirect_served(id: i64) {
    update(id, &["waiting_for = NULL", "attempts = 0"], vec![]);
}
