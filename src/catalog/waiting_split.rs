//! Splits that have work and no worker.

use crate::server::sql;

/// Returns why a split has no worker, as a text that follows "waits for". Returns None if it has one, or will in a
/// moment.
pub fn of_split(id: i64) -> Option<String> {
    let query = "SELECT shardmaster.split_waits_for_worker($1)";
    sql::read_optional::<String>(query, &[id.into()])
}

/// Whether the end of another split does not help: the split gets a worker only when a caller requests it. The catalog
/// of 0.1.0 cannot tell.
pub fn starts_by_call(id: i64) -> bool {
    let is_there =
        "SELECT true WHERE to_regprocedure('shardmaster.split_starts_by_call(bigint)') IS NOT NULL";
    sql::exists(is_there, &[])
        && sql::read_one("SELECT shardmaster.split_starts_by_call($1)", &[id.into()], |row| row.value(1))
            .unwrap_or(false)
}
