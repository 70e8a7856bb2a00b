//! The table `split_sample`: what a split's worker has measured, at some moments. Their number is the same for a split
//! of an hour as for one of a month: the longer it runs, the further they are apart.

use super::split_progress::ProgressStep;
use crate::server::sql;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The greatest number of samples of a split; then every other one is forgotten.
const MOST: i64 = 240;
/// The least time between two samples.
const APART: Duration = Duration::from_secs(1);
/// How long samples of a finished split are kept.
const KEPT: &str = "30 days";

thread_local! {
    /// The split of which this worker has taken the last sample, and when.
    static LAST: Cell<Option<(i64, Instant)>> = const { Cell::new(None) };
}

/// Takes a sample if the last one is old enough. It costs hardly anything for a worker of many steps in a second: most
/// calls write nothing.
pub fn note(id: i64, step: &ProgressStep, changes_applied: i64) {
    let is_early = |(of, at): (i64, Instant)| of == id && at.elapsed() < APART;
    if LAST.get().is_some_and(is_early) {
        return;
    }
    LAST.set(Some((id, Instant::now())));
    let known = sql::write_returning(
        &format!(
            "INSERT INTO shardmaster.split_sample AS s (split_id, at, rows_copied, changes_applied, lag_seconds, queue_bytes)
             SELECT $1, clock_timestamp(), $2, $3, $4, $5
               FROM (SELECT min(k.at), max(k.at), count(*) FROM shardmaster.split_sample k WHERE k.split_id = $1) known (first, last, count)
              WHERE EXISTS (SELECT FROM shardmaster.split_progress g WHERE g.split_id = $1)
                AND (last IS NULL OR clock_timestamp() - last NOT BETWEEN interval '0' AND (last - first) / {MOST} * 2)
             ON CONFLICT DO NOTHING
             RETURNING (SELECT count(*) FROM shardmaster.split_sample k WHERE k.split_id = s.split_id)"
        ),
        &[
            id.into(),
            step.rows_copied.into(),
            changes_applied.into(),
            step.lag.as_secs_f64().into(),
            step.queue_bytes.into(),
        ],
        |row| row.value::<i64>(1),
    );
    match known.first() {
        Some(0) => forget_old(),
        Some(count) if *count >= MOST => thin_out(id),
        Some(_) | None => {}
    }
}

fn thin_out(id: i64) {
    sql::write(
        "DELETE FROM shardmaster.split_sample s USING
                (SELECT k.at, row_number() OVER (ORDER BY k.at) AS number FROM shardmaster.split_sample k WHERE k.split_id = $1) n
          WHERE s.split_id = $1 AND s.at = n.at AND n.number % 2 = 0",
        &[id.into()],
    );
}

/// Forgets samples of splits that ended long ago.
fn forget_old() {
    sql::write(
        &format!(
            "DELETE FROM shardmaster.split_sample s USING shardmaster.split_plan p
              WHERE p.id = s.split_id AND p.finished_at < clock_timestamp() - interval '{KEPT}'"
        ),
        &[],
    );
}
