//! What the workers read of the plans: which splits have work, which are unfinished.

use crate::catalog::split_state::row::{self, OpenSplit};
use crate::catalog::split_state::{CutoverStep, IS_UNFINISHED};
use crate::server::{sql, txn};
use crate::split::lifecycle::work::{self, Work};
use pgrx::pg_sys;
use std::time::Duration;

/// The interval of checks for a catalog that has just been created.
const NEWS_ARRIVE: Duration = Duration::from_millis(10);

/// An unfinished split, for messages.
pub struct Unfinished {
    pub id: i64,
    pub phase: String,
    pub activity: String,
    pub error: Option<String>,
    /// How long its cutover has kept writers waiting by now, in seconds.
    pub fenced_for: Option<f64>,
}

/// A split that has work, as the coordinator sees it.
pub struct ToServe {
    pub id: i64,
    /// Changes whenever the split has advanced or something else is requested of it.
    pub progress: String,
    /// The split is in its cutover: clients are refused until a worker has completed it.
    pub keeps_out: bool,
    /// The split was requested to be undone, or finished: such splits have one more place, since idle ones keep theirs
    /// for as long as their operators want.
    pub ends: bool,
    /// Nothing waits for its work: it has a place beside those of all others, one for all such splits.
    pub is_housekeeping: bool,
}

/// Whether the catalog exists in this database, and keeps it existing until the end of the transaction. Waits for a
/// session that is dropping or altering it.
pub fn catalog_exists() -> bool {
    // SAFETY: the names are NUL-terminated and outlive the call, which does not write to them; the range variable is
    // freed with the transaction's memory.
    let table = unsafe {
        let name =
            pg_sys::makeRangeVar(c"shardmaster".as_ptr().cast_mut(), c"split_plan".as_ptr().cast_mut(), -1);
        pg_sys::RangeVarGetRelidExtended(
            name,
            pg_sys::AccessShareLock as i32,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    };
    table != pg_sys::InvalidOid
}

/// Whether CREATE EXTENSION has been committed, by the rows themselves: a commit wakes others a moment before it sends
/// what their caches have to forget, so `catalog_exists` may not see it yet.
pub fn is_created() -> bool {
    sql::exists("SELECT true FROM pg_catalog.pg_extension WHERE extname = 'shardmaster'", &[])
}

/// The status of a worker that waits for this.
pub const WAITS_FOR_EXTENSION: &str = "waiting for CREATE EXTENSION shardmaster";

/// Returns how long a worker waits that has not found the catalog.
pub fn until_created(look_again: Duration) -> Duration {
    if txn::transaction(is_created) { NEWS_ARRIVE } else { look_again }
}

/// Returns the splits that have work: first those for which clients wait, then the oldest; of those for which nothing
/// waits, the one that was served longest ago. It needs `catalog_exists`.
pub fn with_work() -> Vec<ToServe> {
    let mut found = work::with_work();
    let keeps_out = |open: &OpenSplit| {
        matches!(open.state.cutover_step, CutoverStep::Disabled | CutoverStep::Decided | CutoverStep::Opened)
    };
    let order = |(open, work): &(OpenSplit, Work)| {
        let is_housekeeping = work.is_housekeeping();
        let rested = if is_housekeeping { open.watched.unwrap_or(f64::INFINITY) } else { 0.0 };
        (!keeps_out(open), is_housekeeping, -rested)
    };
    // Equal ones stay in the order of their numbers.
    found.sort_by(|one, other| {
        let ((one_kept, one_kind, one_rested), (kept, kind, rested)) = (order(one), order(other));
        (one_kept, one_kind).cmp(&(kept, kind)).then(one_rested.total_cmp(&rested))
    });
    let to_serve = |(open, work): (OpenSplit, Work)| ToServe {
        id: open.id,
        keeps_out: keeps_out(&open),
        ends: work.ends(),
        is_housekeeping: work.is_housekeeping(),
        progress: open.progress,
    };
    found.into_iter().map(to_serve).collect()
}

/// Whether one split has work. It needs `catalog_exists`.
pub fn has_work(split_id: i64) -> bool {
    row::read(split_id).is_ok_and(|state| work::wanted(&state).is_some())
}

/// Returns the splits that are unfinished. It needs `catalog_exists`.
pub fn unfinished() -> Vec<Unfinished> {
    sql::read(
        &format!(
            "SELECT p.id, p.phase, p.activity, p.error_message, extract(epoch FROM clock_timestamp() - p.fenced_since)::float8
               FROM shardmaster.split_plan p WHERE {IS_UNFINISHED} ORDER BY p.id"
        ),
        &[],
        |row| Unfinished {
            id: row.value(1),
            phase: row.value(2),
            activity: row.value(3),
            error: row.get(4),
            fenced_for: row.get(5),
        },
    )
}
