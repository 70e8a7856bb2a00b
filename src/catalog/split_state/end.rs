//! The end of a split: rolled back, finished or reversed; and what is left of its redirect.

use super::{NO_ERROR, NOT_FAILED, NOW, update, update_if};

/// Records that nothing of the split is left on its shards.
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

/// Records that from here on a split that is being finished cannot be reversed.
pub fn undo_ended(id: i64) {
    update(id, &["undo_ended_at = clock_timestamp()"], vec![]);
}

/// Records that the last moved row was deleted on the source.
pub fn purged(id: i64) {
    update(id, &["purged_at = clock_timestamp()", NOW], vec![]);
}

/// Records that the source has moved rows again.
pub fn not_purged(id: i64) {
    update(id, &["purged_at = NULL"], vec![]);
}

/// Records that the shards are further than this master: nothing is left to be moved or deleted.
pub fn finish_was_lost(id: i64) {
    let set = [
        "cutover_step = 'moved'",
        "fenced_since = NULL",
        "goal = 'finished'",
        "purged_at = clock_timestamp()",
        "undo_ended_at = clock_timestamp()",
        "target_lost = false",
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

/// Records, in the commit that decides its reverse split, that the split is reversed: what is left is to clean up both
/// shards. A restored master may have forgotten that the split was decided; it is then rolled back.
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

/// Records that from now on the source redirects clients of the moved keys.
pub fn redirects(id: i64) {
    update(id, &["redirect_since = clock_timestamp()", "redirect_ending = false"], vec![]);
}

/// Asks a worker to end a part of the redirect, at once.
pub fn end_redirect(id: i64) {
    let set = ["redirect_ending = true", "watched_at = NULL", "attempts = 0", NOT_FAILED];
    update(id, &set, vec![]);
}

/// Records the end of a redirect's part. The redirect's entries show whether another part is to be ended.
pub fn redirect_ended(id: i64) {
    let set = "redirect_ending = EXISTS (SELECT 1 FROM shardmaster.redirect r
                                          WHERE r.split_id = split_plan.id AND (r.ending OR r.asked_of IS NOT NULL))";
    update(id, &[set], vec![]);
}

/// Records and returns whether a finished split no longer redirects anything.
pub fn redirect_is_over(id: i64) -> bool {
    let is_over = "finished_at IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM shardmaster.redirect r WHERE r.split_id = split_plan.id)";
    let set = ["redirect_since = NULL", "redirect_ending = false", "guard_dropped_at = clock_timestamp()"];
    update_if(is_over, id, &set, vec![])
}

/// Records that a part of the redirect has been ended: nothing is waited for.
pub fn redirect_served(id: i64) {
    update(id, &["waiting_for = NULL", "attempts = 0"], vec![]);
}
