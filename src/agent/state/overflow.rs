//! The table `overflow`, on a source: transactions whose changes the queue did not take. The trigger writes it.

/// Returns a query: for how many of them a condition over their `xid` holds.
pub fn count(split: i64, condition: &str) -> String {
    format!("SELECT count(*) FROM shardmaster_agent.overflow WHERE split_id = {split} AND {condition}")
}

/// Returns a condition: whether there are any.
pub fn any(split: i64) -> String {
    format!("EXISTS (SELECT FROM shardmaster_agent.overflow WHERE split_id = {split})")
}

pub fn delete(split: i64) -> String {
    format!("DELETE FROM shardmaster_agent.overflow WHERE split_id = {split}")
}
