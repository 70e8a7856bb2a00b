//! The table `split_settle`: when a split is to be finished by itself, so that the queue of its
//! reverse split does not grow for ever. Whoever writes here holds the plan's lock.

use crate::server::sql;
use pgrx::datum::Interval;

/// Whichever comes first; one of them at least.
#[derive(Debug)]
pub struct FinishTerms {
    /// After the cutover.
    pub age: Option<Interval>,
    /// Of the reverse split's queue.
    pub queue_bytes: Option<i64>,
}

/// It is time, as SQL over a row `p` of `split_plan`. A difference of two times may be compared
/// with any interval; a sum would not be a time with each. While rows are compared or known to differ
/// its end might be refused, and would have taken the reverse split away.
pub const IS_DUE: &str = "EXISTS (SELECT 1 FROM shardmaster.split_settle s
                                   WHERE s.split_id = p.id AND p.finished_at IS NULL
                                     AND (s.is_full OR pg_catalog.clock_timestamp() - p.cutover_at >= s.age)
                                     AND NOT EXISTS (SELECT 1 FROM shardmaster.split_verification v
                                                      WHERE v.split_id = p.id
                                                        AND (v.differing > 0 OR v.differed > 0 OR v.status IN ('pending', 'running'))))";

/// Takes the place of what was said before.
pub fn set(id: i64, terms: &FinishTerms) {
    sql::write(
        "INSERT INTO shardmaster.split_settle (split_id, age, queue_bytes) VALUES ($1, $2, $3)
         ON CONFLICT (split_id) DO UPDATE
            SET age = EXCLUDED.age, queue_bytes = EXCLUDED.queue_bytes, is_full = false",
        &[id.into(), terms.age.into(), terms.queue_bytes.into()],
    );
}

/// Whether something had been said.
pub fn forget(id: i64) -> bool {
    sql::write("DELETE FROM shardmaster.split_settle WHERE split_id = $1", &[id.into()]) == 1
}

/// The terms as people read them.
pub fn text(id: i64) -> Option<String> {
    sql::read_one("SELECT shardmaster.split_settles($1)", &[id.into()], |row| row.get::<String>(1)).flatten()
}

/// At which size of the reverse split's queue the split is to end.
pub fn queue_bytes(id: i64) -> Option<i64> {
    let query = "SELECT queue_bytes FROM shardmaster.split_settle WHERE split_id = $1 AND NOT is_full";
    sql::read_one(query, &[id.into()], |row| row.get::<i64>(1)).flatten()
}

/// The queue was seen to have so many bytes; None: it is full, and the reverse split would copy all.
/// Its operator may have said something else while a shard was asked: of no size, say.
pub fn measured(id: i64, bytes: Option<i64>) {
    sql::write(
        "UPDATE shardmaster.split_settle SET is_full = true
          WHERE split_id = $1 AND queue_bytes IS NOT NULL AND coalesce($2 >= queue_bytes, true)",
        &[id.into(), bytes.into()],
    );
}
