//! What a worker records about itself: its generation, its activity, its failed attempts.

use super::{Activity, NO_ERROR, NOW, SINCE_FIRST, update, update_if};
use crate::clean;
use crate::error::Failure;
use crate::server::sql;

/// Takes the next generation for this session and returns it. The caller holds the plan's lock.
pub fn take(id: i64) -> Option<i64> {
    update(id, &["generation = generation + 1", "worker_pid = pg_backend_pid()"], vec![]);
    let query = "SELECT generation FROM shardmaster.split_plan WHERE id = $1";
    sql::read_one(query, &[id.into()], |row| row.value(1))
}

/// Catches up with shards that are ahead: their generation `known` becomes this worker's, which has `seen` of the
/// plan. Returns false if a newer worker has taken over.
pub fn catch_up(id: i64, seen: i64, known: i64) -> bool {
    let is_ours = "generation <= $3 + 1 AND generation <= $2 AND worker_pid = pg_backend_pid()";
    update_if(is_ours, id, &["generation = $2"], vec![known.into(), seen.into()])
}

/// Records the activity, and what it waits for, if they differ from what is recorded.
pub fn does(id: i64, activity: Activity, waiting_for: Option<&str>) {
    let differs = "(activity, waiting_for) IS DISTINCT FROM ($2, $3)";
    let args = vec![activity.as_str().into(), waiting_for.map(clean::printable).into()];
    update_if(differs, id, &["activity = $2", "waiting_for = $3", NOW], args);
}

/// Records that the split is paused, unless the pause was ended meanwhile.
pub fn rests_paused(id: i64) {
    let differs = "paused AND (activity, waiting_for) IS DISTINCT FROM ('paused', 'shard_split_resume')";
    let set = ["activity = 'paused'", "waiting_for = 'shard_split_resume'", NOW];
    update_if(differs, id, &set, vec![]);
}

/// Records only the activity.
pub fn activity(id: i64, activity: Activity) {
    update(id, &["activity = $2"], vec![activity.as_str().into()]);
}

/// Records that both sides are installed, with the current routing version.
pub fn installed(id: i64) {
    let version =
        "routing_version_at_start = (SELECT coalesce(max(v.version), 0) FROM shardmaster.routing_version v
                                                WHERE v.keyspace = split_plan.keyspace)";
    update(id, &["activity = 'idle'", "waiting_for = NULL", "attempts = 0", NO_ERROR, version], vec![]);
}

/// Records that what the worker has begun has ended without an error.
pub fn done(id: i64) {
    update(id, &["activity = 'idle'", "waiting_for = NULL", NO_ERROR, NOW], vec![]);
}

/// Records the number of failed attempts and the reason of the last one.
pub fn tries_again(id: i64, attempts: u32, reason: &str) {
    let set = ["activity = 'retrying'", "waiting_for = $2", "attempts = $3", NOW, SINCE_FIRST];
    update(id, &set, vec![reason.into(), i32::try_from(attempts).unwrap_or(i32::MAX).into()]);
}

/// Records that a retried action is running again. Its end shows whether it succeeds.
pub fn under_way(id: i64) {
    let set = ["activity = 'working'", "waiting_for = NULL"];
    update_if("activity = 'retrying'", id, &set, vec![]);
}

/// Records that a retried action has succeeded. A completed split of which nothing is requested becomes idle: both
/// shards were checked, and nothing is left to do.
pub fn recovered(id: i64) {
    let activity = "activity = CASE WHEN activity <> 'retrying' THEN activity
                                    WHEN phase = 'completed' AND cutover_step = 'moved' AND goal <> 'finished' THEN 'idle'
                                    ELSE 'working' END";
    update(id, &["attempts = 0", "waiting_for = NULL", activity], vec![]);
}

/// Records that its shards were asked, and what the split waits for there.
pub fn watched(id: i64, waiting_for: Option<&str>) {
    let attempts = "attempts = CASE WHEN $2 IS NULL THEN 0 ELSE attempts + 1 END";
    let set = ["watched_at = clock_timestamp()", "waiting_for = $2", SINCE_FIRST, attempts];
    update(id, &set, vec![waiting_for.into()]);
}

/// Records the error that has stopped the split, for its operator; the worker is gone.
pub fn failed(id: i64, failure: &Failure) {
    error(id, failure, &["activity = 'failed'", "worker_pid = NULL"]);
}

/// Records that a rehearsal, or a cutover, was aborted: the split continues to follow its source. A rollback that was
/// requested meanwhile stays requested.
pub fn aborted(id: i64, failure: &Failure, is_rehearsal: bool) {
    let goal = "goal = CASE goal WHEN 'rolled_back' THEN goal ELSE 'backfill' END";
    let set: &[&str] = if is_rehearsal { &["activity = 'idle'"] } else { &["activity = 'idle'", goal] };
    error(id, failure, set);
}

/// Records an error. A shard's DETAIL shows rows as they are; it may contain the split's token, which some of the
/// agent's own rows have and which is left out here.
fn error(id: i64, failure: &Failure, set: &[&str]) {
    let failure = failure.cleaned();
    let error = "error_code = $2, error_message = replace($3, token, '...'),
                 error_detail = replace($5, token, '...'), error_hint = $4, waiting_for = NULL";
    let set: Vec<&str> = [error, NOW].into_iter().chain(set.iter().copied()).collect();
    let args = vec![
        failure.sqlstate.as_str().into(),
        failure.message.as_str().into(),
        failure.hint.as_deref().into(),
        failure.detail.as_deref().into(),
    ];
    update(id, &set, args);
}

/// Returns the number of failed attempts of earlier workers, which the next one continues. A session that only
/// monitors a split counts its own.
pub fn attempts_before(id: i64) -> u32 {
    let query =
        "SELECT attempts FROM shardmaster.split_plan WHERE id = $1 AND activity IN ('retrying', 'working')";
    let attempts = sql::read_optional::<i32>(query, &[id.into()]);
    attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0)
}

/// Returns the number of its worker's failed attempts.
pub fn attempts(id: i64) -> i32 {
    let query = "SELECT attempts FROM shardmaster.split_plan WHERE id = $1";
    sql::read_one_again(query, &[id.into()], |row| row.value(1)).unwrap_or(0)
}
