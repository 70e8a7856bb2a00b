//! The table `lease`, on a source: the time and the size up to which a queue may grow.

use crate::guc;

/// Returns the statement that lets capture continue. The lease has a row of its own: in the state row it would give
/// every REPEATABLE READ writer a serialization failure.
pub fn renew(split: i64) -> String {
    format!(
        "INSERT INTO shardmaster_agent.lease (split_id, open_until, max_bytes)
         VALUES ({split}, clock_timestamp() + interval '{} s', {})
         ON CONFLICT (split_id) DO UPDATE SET open_until = EXCLUDED.open_until, max_bytes = EXCLUDED.max_bytes",
        guc::capture_lease_seconds(),
        guc::queue_max_bytes()
    )
}

/// Returns the statement that makes the lease permanent: only the size bounds the queue of a reverse split that was
/// not requested.
pub fn hold(split: i64) -> String {
    format!("UPDATE shardmaster_agent.lease SET open_until = 'infinity' WHERE split_id = {split}")
}

/// Returns the statement that updates the permitted size of a queue with a permanent lease.
pub fn limit(split: i64) -> String {
    format!(
        "UPDATE shardmaster_agent.lease SET max_bytes = {0} WHERE split_id = {split} AND max_bytes <> {0}",
        guc::queue_max_bytes()
    )
}

pub fn delete(split: i64) -> String {
    format!("DELETE FROM shardmaster_agent.lease WHERE split_id = {split}")
}
