//! The tables `split_progress` and `split_table_progress`: how far a split is. The rows are inserted by its
//! installation and deleted by its rollback; a split without rows has not begun. A session that writes here holds the
//! plan's lock.

use super::local;
use super::split_state::Phase;
use crate::clean;
use crate::server::sql;
use std::time::Duration;

fn update(id: i64, set: &str) {
    sql::write(&format!("UPDATE shardmaster.split_progress SET {set} WHERE split_id = $1"), &[id.into()]);
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0 * 10.0).round() / 10.0
}

/// Records how long a rehearsal has kept writers waiting, and returns it in milliseconds.
pub fn rehearsed(id: i64, fenced: Duration) -> f64 {
    let fenced = milliseconds(fenced);
    sql::write(
        "UPDATE shardmaster.split_progress SET rehearsed_ms = $2::float8::numeric WHERE split_id = $1",
        &[id.into(), fenced.into()],
    );
    fenced
}

/// Records that both sides are installed.
pub fn begin(id: i64) {
    sql::write(
        "INSERT INTO shardmaster.split_progress (split_id, dual_write_started_at) VALUES ($1, clock_timestamp())
         ON CONFLICT (split_id) DO UPDATE SET dual_write_started_at = EXCLUDED.dual_write_started_at",
        &[id.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_table_progress (split_id, ordinal)
         SELECT split_id, ordinal FROM shardmaster.split_table WHERE split_id = $1 ON CONFLICT DO NOTHING",
        &[id.into()],
    );
}

/// Deletes the progress: nothing of the split is left on the shards.
pub fn clear(id: i64) {
    sql::write("DELETE FROM shardmaster.split_progress WHERE split_id = $1", &[id.into()]);
}

/// Records that the first copy begins.
pub fn copying(id: i64) {
    update(id, "backfill_status = 'running', backfill_started_at = clock_timestamp()");
}

/// Records that a step has led to another phase.
pub fn entered(id: i64, phase: Phase) {
    match phase {
        Phase::Tailing => update(
            id,
            "backfill_status = 'completed', backfill_completed_at = clock_timestamp(), tail_status = 'running'",
        ),
        Phase::CutoverPending => update(id, "tail_status = 'caught_up'"),
        Phase::Backfill => {
            update(id, "backfill_status = 'running', tail_status = 'pending', backfill_completed_at = NULL")
        }
        Phase::Planning | Phase::DualWrite | Phase::Completed | Phase::RolledBack => {}
    }
}

/// What a step has found and done.
pub struct ProgressStep {
    pub rows_copied: i64,
    /// The copied share of the blocks of all tables.
    pub percent: f64,
    pub last_event_id: i64,
    /// The time by the source's clock, in microseconds since 1970.
    pub last_event_at: Option<i64>,
    /// `None` keeps the earlier status.
    pub tail_status: Option<&'static str>,
    pub changes: i64,
    pub lag: Duration,
    pub queue_bytes: i64,
}

pub fn step(id: i64, step: &ProgressStep) {
    sql::write(
        "UPDATE shardmaster.split_progress
            SET total_rows_copied = $2, percent = round($3::numeric, 1), last_event_id = greatest(last_event_id, $4),
                last_event_ts = greatest(last_event_ts, timestamptz 'epoch' + $5 * interval '1 microsecond'), tail_status = coalesce($6, tail_status),
                lag_rows = $7, lag = make_interval(secs => $8), queue_bytes = $9, measured_at = clock_timestamp()
          WHERE split_id = $1",
        &[
            id.into(),
            step.rows_copied.into(),
            step.percent.into(),
            step.last_event_id.into(),
            step.last_event_at.into(),
            step.tail_status.into(),
            step.changes.into(),
            step.lag.as_secs_f64().into(),
            step.queue_bytes.into(),
        ],
    );
}

/// Records the newest change of a step that is not recorded otherwise, in microseconds since 1970.
pub fn last_event(id: i64, at: Option<i64>) {
    sql::write(
        "UPDATE shardmaster.split_progress SET last_event_ts = greatest(last_event_ts, timestamptz 'epoch' + $2 * interval '1 microsecond')
          WHERE split_id = $1",
        &[id.into(), at.into()],
    );
}

/// Records that a cutover has decided: nothing is waiting on the source.
pub fn decided(id: i64, last_event_id: i64) {
    sql::write(
        "UPDATE shardmaster.split_progress
            SET last_event_id = greatest(last_event_id, $2), lag_rows = 0, lag = interval '0', queue_bytes = 0
          WHERE split_id = $1",
        &[id.into(), last_event_id.into()],
    );
}

/// Whether rows of the split have come to the target.
pub fn has_copied(id: i64) -> bool {
    let query = "SELECT true FROM shardmaster.split_progress WHERE split_id = $1 AND total_rows_copied > 0";
    sql::exists(query, &[id.into()])
}

/// Records how long writers had to wait. The longest time stays: an earlier failed cutover may have kept them longer.
pub fn fenced(id: i64, fenced: Duration) {
    sql::write(
        "UPDATE shardmaster.split_progress SET fence_ms = greatest(fence_ms, $2::float8::numeric) WHERE split_id = $1",
        &[id.into(), milliseconds(fenced).into()],
    );
}

/// Records what the cutover waited for, which `shard_split_run()` reports. The catalog of 0.1.0 has no column for it.
pub fn fence_waited_for(id: i64, who: &str) {
    if !local::has_column("split_progress", "fence_waited_for") {
        return;
    }
    sql::write(
        "UPDATE shardmaster.split_progress SET fence_waited_for = $2 WHERE split_id = $1",
        &[id.into(), clean::printable(who).into()],
    );
}

/// Records how long writers had to wait for an aborted cutover, before its fence is forgotten.
pub fn fenced_in_vain(id: i64) {
    sql::write(
        "UPDATE shardmaster.split_progress g
            SET fence_ms = greatest(g.fence_ms, round(extract(epoch FROM clock_timestamp() - p.fenced_since)::numeric * 1000, 1))
           FROM shardmaster.split_plan p
          WHERE p.id = $1 AND g.split_id = p.id AND p.fenced_since IS NOT NULL",
        &[id.into()],
    );
}

/// Records that a cutover was aborted. The next step shows whether the target has caught up.
pub fn follows(id: i64) {
    update(id, "tail_status = 'running'");
}

/// Records that what failed is requested again.
pub fn resumed(id: i64) {
    update(
        id,
        "backfill_status = CASE backfill_status WHEN 'failed' THEN 'running' ELSE backfill_status END,
         tail_status = CASE tail_status WHEN 'failed' THEN 'running' ELSE tail_status END",
    );
}

/// Records that something has failed in this phase.
pub fn failed(id: i64, phase: Phase, message: &str) {
    match phase {
        Phase::Backfill => update(id, "backfill_status = 'failed'"),
        Phase::Tailing | Phase::CutoverPending => update(id, "tail_status = 'failed'"),
        Phase::Planning | Phase::DualWrite | Phase::Completed | Phase::RolledBack => {}
    }
    sql::write(
        "UPDATE shardmaster.split_table_progress SET last_error = $2, chunks_failed = chunks_failed + 1,
                status = CASE WHEN $3 THEN 'failed' ELSE status END
          WHERE split_id = $1 AND status = 'running'",
        &[id.into(), message.into(), (phase == Phase::Backfill).into()],
    );
}

/// How far one table is.
pub struct ProgressTable {
    pub ordinal: i32,
    /// "start", "end", or a position in between.
    pub position: String,
    pub rows_copied: i64,
    pub changes_applied: i64,
    pub bytes: i64,
    pub chunks: i64,
}

/// Stores the tables that are further than before, or had an error: of many tables few change in a step.
pub fn tables(id: i64, tables: &[ProgressTable]) {
    fn of<T>(tables: &[ProgressTable], what: impl Fn(&ProgressTable) -> T) -> Vec<T> {
        tables.iter().map(what).collect()
    }
    sql::write(
        "UPDATE shardmaster.split_table_progress p
            SET status = CASE t.\"position\" WHEN 'end' THEN 'completed' WHEN 'start' THEN 'pending' ELSE 'running' END,
                \"position\" = t.\"position\", rows_copied = t.rows_copied, changes_applied = t.changes_applied,
                bytes = t.bytes, chunks_ok = t.chunks, last_error = NULL,
                started_at = CASE WHEN t.chunks > 0 THEN coalesce(p.started_at, clock_timestamp()) END,
                completed_at = CASE WHEN t.\"position\" = 'end' THEN coalesce(p.completed_at, clock_timestamp()) END
           FROM unnest($2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
                AS t (ordinal, \"position\", rows_copied, changes_applied, bytes, chunks)
          WHERE p.split_id = $1 AND p.ordinal = t.ordinal
            AND (p.last_error IS NOT NULL
                 OR (p.\"position\", p.rows_copied, p.changes_applied, p.bytes, p.chunks_ok)
                    IS DISTINCT FROM (t.\"position\", t.rows_copied, t.changes_applied, t.bytes, t.chunks))",
        &[
            id.into(),
            of(tables, |table| table.ordinal).into(),
            of(tables, |table| table.position.clone()).into(),
            of(tables, |table| table.rows_copied).into(),
            of(tables, |table| table.changes_applied).into(),
            of(tables, |table| table.bytes).into(),
            of(tables, |table| table.chunks).into(),
        ],
    );
}
