//! The table `split_settle`: when a split is finished automatically, so that the queue of its reverse split does not
//! grow for ever. A session that writes here holds the plan's lock.

use crate::server::sql;
use pgrx::datum::Interval;

/// The terms of the automatic finish; at least one is set, and the first that is met decides.
#[derive(Debug)]
pub struct FinishTerms {
    /// The time since the cutover.
    pub age: Option<Interval>,
    /// The size of the reverse split's queue.
    pub queue_bytes: Option<i64>,
}

/// SQL condition over a row `p` of `split_plan`: the automatic finish is due. The difference of two times may be
/// compared with any interval, while a sum can exceed the range of timestamps. While rows are compared or known to
/// differ, the finish might be refused after it has removed the reverse split.
pub const IS_DUE: &str = "EXISTS (SELECT 1 FROM shardmaster.split_settle s
                                   WHERE s.split_id = p.id AND p.finished_at IS NULL
                                     AND (s.is_full OR pg_catalog.clock_timestamp() - p.cutover_at >= s.age)
                                     AND NOT EXISTS (SELECT 1 FROM shardmaster.split_verification v
                                                      WHERE v.split_id = p.id
                                                        AND (v.differing > 0 OR v.differed > 0 OR v.status IN ('pending', 'running'))))";

/// Stores the terms. They replace earlier ones.
pub fn set(id: i64, terms: &FinishTerms) {
    sql::write(
        "INSERT INTO shardmaster.split_settle (split_id, age, queue_bytes) VALUES ($1, $2, $3)
         ON CONFLICT (split_id) DO UPDATE
            SET age = EXCLUDED.age, queue_bytes = EXCLUDED.queue_bytes, is_full = false",
        &[id.into(), terms.age.into(), terms.queue_bytes.into()],
    );
}

/// Deletes the terms and returns whether there were any.
pub fn forget(id: i64) -> bool {
    sql::write("DELETE FROM shardmaster.split_settle WHERE split_id = $1", &[id.into()]) == 1
}

/// Returns the terms as people read them.
pub fn text(id: i64) -> Option<String> {
    sql::read_optional::<String>("SELECT shardmaster.split_settles($1)", &[id.into()])
}

/// Returns the size of the reverse split's queue at which the split is finished.
pub fn queue_bytes(id: i64) -> Option<i64> {
    let query = "SELECT queue_bytes FROM shardmaster.split_settle WHERE split_id = $1 AND NOT is_full";
    sql::read_optional::<i64>(query, &[id.into()])
}

/// Records the measured size of the queue. None means that it is full, and the reverse split would copy everything.
/// The operator may have changed the terms while a shard was asked, for example to no size.
pub fn measured(id: i64, bytes: Option<i64>) {
    sql::write(
        "UPDATE shardmaster.split_settle SET is_full = true
          WHERE split_id = $1 AND queue_bytes IS NOT NULL AND coalesce($2 >= queue_bytes, true)",
        &[id.into(), bytes.into()],
    );
}
