//! Changes of a split's phase and of its cutover step.

use super::{CutoverStep, Goal, NO_ERROR, NOW, Phase, update, update_if};

/// Sets the phase. The caller holds the plan's lock, and has checked that the change is allowed.
pub fn phase(id: i64, phase: Phase) {
    let reads = "reads_on_target = reads_on_target AND $2 IN ('tailing', 'cutover_pending')";
    update(id, &["phase = $2", reads, NOW], vec![phase.as_str().into()]);
}

/// Sets the step of the cutover. Between the first and the last step the split is working; it does not wait for the
/// operator.
pub fn step(id: i64, step: CutoverStep) {
    let rests = matches!(step, CutoverStep::None | CutoverStep::Moved);
    let fenced = "fenced_since = CASE WHEN $2 IN ('disabled', 'decided') THEN coalesce(fenced_since, clock_timestamp()) END";
    let activity = "activity = CASE WHEN activity IN ('idle', 'working') THEN $3 ELSE activity END";
    let args = vec![step.as_str().into(), (if rests { "idle" } else { "working" }).into()];
    update(id, &["cutover_step = $2", NOW, fenced, activity], args);
}

/// Records that the cutover has decided, with this version of the routing. A restored master may have forgotten that
/// the cutover was requested.
pub fn decided(id: i64, version: i64) {
    let set = [
        "routing_version_cutover = $2",
        "cutover_step = 'decided'",
        "cutover_at = clock_timestamp()",
        "target_lost = false",
        "waiting_for = NULL",
        NO_ERROR,
    ];
    update(id, &set, vec![version.into()]);
    let is_less = "goal NOT IN ($2, 'finished', 'rolled_back')";
    update_if(is_less, id, &["goal = $2"], vec![Goal::Completed.as_str().into()]);
}

/// Withdraws a decision that no shard has carried out. `asks_target`: the target has answered, so the rollback that
/// follows does not leave it out.
pub fn withdrawn(id: i64, asks_target: bool) {
    let set = [
        "routing_version_cutover = NULL",
        "cutover_step = 'none'",
        "cutover_at = NULL",
        "fenced_since = NULL",
        "target_lost = target_lost AND NOT $2",
        NO_ERROR,
        NOW,
    ];
    update(id, &set, vec![asks_target.into()]);
}

/// Records the routing version that a reverse split begins with.
pub fn begins_with(id: i64, version: i64) {
    update(id, &["routing_version_at_start = $2"], vec![version.into()]);
}

/// Records the structure of the tables of a reverse split's source, as JSON.
pub fn baseline(id: i64, json: &str) {
    update(id, &["baseline = $2::text::jsonb"], vec![json.into()]);
}
