//! Splits that have work, and no worker.

use crate::server::sql;

/// Why one has none, to stand behind "waits for"; None: it has one, or will in a moment.
pub fn of_split(id: i64) -> Option<String> {
    let query = "SELECT shardmaster.split_waits_for_worker($1)";
    sql::read_one(query, &[id.into()], |row| row.get::<String>(1)).flatten()
}

/// Whether that ends by no other split's end.
pub fn is_started_by_nobody(why: &str) -> bool {
    why.starts_with("a worker, but none is started")
}
