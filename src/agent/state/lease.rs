//! The table `lease`, on a source: how long and how far a queue may grow.

use crate::guc;

/// The statement that lets capture go on, in a row of its own: in the state row it
/// would give every REPEATABLE READ writer a serialization failure.
pub fn renew(split: i64) -> String {
    format!(
        "INSERT INTO shardmaster_agent.lease (split_id, open_until, max_bytes)
         VALUES ({split}, clock_timestamp() + interval '{} s', {})
         ON CONFLICT (split_id) DO UPDATE SET open_until = EXCLUDED.open_until, max_bytes = EXCLUDED.max_bytes",
        guc::capture_lease_seconds(),
        guc::queue_max_bytes()
    )
}

/// The same for as long as nobody renews it: the size alone bounds the queue of a reverse split that
/// nobody has asked for.
pub fn hold(split: i64) -> String {
    format!("UPDATE shardmaster_agent.lease SET open_until = 'infinity' WHERE split_id = {split}")
}

/// How far the queue may grow has changed since, for one that nobody renews.
pub fn limit(split: i64) -> String {
    format!(
        "UPDATE shardmaster_agent.lease SET max_bytes = {0} WHERE split_id = {split} AND max_bytes <> {0}",
        guc::queue_max_bytes()
    )
}

pub fn delete(split: i64) -> String {
    format!("DELETE FROM shardmaster_agent.lease WHERE split_id = {split}")
}
